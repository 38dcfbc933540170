/** Frames of a byte stream: four bytes of length, big-endian, then so many bytes. */

const PREFIX_BYTES = 4;
export const TO_PAGE_BYTES_MAX = 16 * 1024 * 1024;
export const FROM_PAGE_BYTES_MAX = 64 * 1024;

export class Oversize extends Error {
  override readonly name = "Oversize";
}

/** Throws Oversize for what no gateway takes. */
export function framed(payload: Uint8Array): Uint8Array {
  if (payload.length > FROM_PAGE_BYTES_MAX) {
    throw new Oversize(`a frame of ${payload.length} bytes, at most ${FROM_PAGE_BYTES_MAX}`);
  }
  const frame = new Uint8Array(PREFIX_BYTES + payload.length);
  new DataView(frame.buffer).setUint32(0, payload.length);
  frame.set(payload, PREFIX_BYTES);
  return frame;
}

/** Puts frames together, however they are cut up. Holds what has come, never what is announced. */
export class FrameReader {
  #pieces: Uint8Array[] = [];
  #held = 0;

  /** The payloads that are whole now, each in a buffer of its own. Throws Oversize. */
  push(piece: Uint8Array): Uint8Array[] {
    this.#pieces.push(piece);
    this.#held += piece.length;
    const whole: Uint8Array[] = [];
    for (;;) {
      const size = this.#announced();
      if (size === null || this.#held < PREFIX_BYTES + size) return whole;
      this.#taken(PREFIX_BYTES);
      whole.push(this.#taken(size));
    }
  }

  #announced(): number | null {
    if (this.#held < PREFIX_BYTES) return null;
    if (this.#pieces[0]!.length < PREFIX_BYTES) {
      this.#pieces = [this.#taken(this.#held)];
      this.#held = this.#pieces[0]!.length;
    }
    const { buffer, byteOffset } = this.#pieces[0]!;
    const size = new DataView(buffer, byteOffset).getUint32(0);
    if (size > TO_PAGE_BYTES_MAX) {
      throw new Oversize(`a frame of ${size} bytes, at most ${TO_PAGE_BYTES_MAX}`);
    }
    return size;
  }

  /** The first `count` bytes, copied. */
  #taken(count: number): Uint8Array {
    const copy = new Uint8Array(count);
    let filled = 0, used = 0; // pieces that are used up
    while (filled < count) {
      const piece = this.#pieces[used]!;
      const part = piece.subarray(0, count - filled);
      copy.set(part, filled);
      filled += part.length;
      if (part.length === piece.length) used += 1;
      else this.#pieces[used] = piece.subarray(part.length);
    }
    this.#pieces.splice(0, used);
    this.#held -= count;
    return copy;
  }
}
