/**
 * One value, one encoding: the strict subset of msgpack that the daemon hashes and signs.
 *
 * `decode` takes exactly the bytes that `encode` makes; anything else throws NotCanonical. There
 * are no floats and no extension types. Bytes that come out are views of those that went in.
 */

import type { Canonical } from "../protocol";

const DEPTH_MAX = 16;
const INT_MIN = -(2n ** 63n), INT_MAX = 2n ** 64n - 1n;

export class NotCanonical extends Error {
  override readonly name = "NotCanonical";
}

export function encode(value: Canonical): Uint8Array {
  const writer = new Writer();
  writer.value(value, 0);
  return writer.whole();
}

export function decode(payload: Uint8Array): Canonical {
  const reader = new Reader(payload);
  const value = reader.value(0);
  reader.end();
  return value;
}

/** The codes of one family, for sizes of 8, 16 and 32 bits; `fixed` holds small sizes itself. */
interface Family {
  readonly fixed: number;
  readonly fixedMax: number; // -1: no such form
  readonly codes: readonly (number | null)[]; // of 1, 2 and 4 bytes of size
}

const TEXT: Family = { fixed: 0xa0, fixedMax: 31, codes: [0xd9, 0xda, 0xdb] };
const BYTES: Family = { fixed: 0, fixedMax: -1, codes: [0xc4, 0xc5, 0xc6] };
const LIST: Family = { fixed: 0x90, fixedMax: 15, codes: [null, 0xdc, 0xdd] };
const MAP: Family = { fixed: 0x80, fixedMax: 15, codes: [null, 0xde, 0xdf] };
const WIDTHS = [1, 2, 4] as const;

class Writer {
  #bytes = new Uint8Array(256);
  #length = 0;

  whole(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  value(value: Canonical, depth: number): void {
    if (value === null) this.#put(0xc0, 0);
    else if (typeof value === "boolean") this.#put(value ? 0xc3 : 0xc2, 0);
    else if (typeof value === "number" || typeof value === "bigint") this.#integer(value);
    else if (typeof value === "string") this.#text(value);
    else if (value instanceof Uint8Array) {
      this.#size(BYTES, value.length);
      this.#raw(value);
    } else if (isMap(value)) this.#map(value, depth);
    else this.#list(value, depth);
  }

  #list(items: readonly Canonical[], depth: number): void {
    checkDepth(depth, items.length);
    this.#size(LIST, items.length);
    for (const item of items) this.value(item, depth + 1);
  }

  #map(map: ReadonlyMap<string, Canonical>, depth: number): void {
    checkDepth(depth, map.size);
    this.#size(MAP, map.size);
    const entries = [...map].map(([key, value]) => [utf8(key), value] as const);
    for (const [key, value] of entries.sort(([a], [b]) => compared(a, b))) {
      this.#size(TEXT, key.length);
      this.#raw(key);
      this.value(value, depth + 1);
    }
  }

  #text(text: string): void {
    const bytes = utf8(text);
    this.#size(TEXT, bytes.length);
    this.#raw(bytes);
  }

  #integer(value: number | bigint): void {
    if (typeof value === "number" && !Number.isSafeInteger(value)) {
      throw new NotCanonical(`${value} is no whole number, or not exact`);
    }
    const whole = BigInt(value);
    if (whole < INT_MIN || whole > INT_MAX) {
      throw new NotCanonical("an integer does not fit 64 bits");
    }
    if (whole >= -32n && whole <= 127n) {
      this.#put(Number(whole) & 0xff, 0);
      return;
    }
    const isNegative = whole < 0n;
    const step = [8n, 16n, 32n, 64n].findIndex((bits) =>
      isNegative ? whole >= -(1n << (bits - 1n)) : whole < 1n << bits);
    const at = this.#put((isNegative ? 0xd0 : 0xcc) + step, 1 << step);
    let rest = BigInt.asUintN(64, whole);
    for (let i = (1 << step) - 1; i >= 0; i--, rest >>= 8n) {
      this.#bytes[at + i] = Number(rest & 0xffn);
    }
  }

  #size({ fixed, fixedMax, codes }: Family, size: number): void {
    if (size <= fixedMax) {
      this.#put(fixed | size, 0);
      return;
    }
    const step = WIDTHS.findIndex((width, i) => codes[i] !== null && size < 2 ** (8 * width));
    const width = WIDTHS[step]!;
    const at = this.#put(codes[step]!, width);
    for (let i = 0; i < width; i++) this.#bytes[at + i] = size / 2 ** (8 * (width - 1 - i));
  }

  #raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  /** Writes a code and leaves `room` bytes behind it; where these begin. */
  #put(code: number, room: number): number {
    this.#room(1 + room);
    this.#bytes[this.#length] = code;
    this.#length += 1 + room;
    return this.#length - room;
  }

  #room(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.#bytes.length, this.#length + more));
    larger.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = larger;
  }
}

class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  end(): void {
    if (this.#at !== this.#bytes.length) throw new NotCanonical("bytes behind the value");
  }

  value(depth: number): Canonical {
    const code = this.#take(1)[0]!;
    if (code <= 0x7f) return code;
    if (code >= 0xe0) return code - 0x100;
    if (code >= 0xcc && code <= 0xd3) return this.#integer(code);
    if (code === 0xc0) return null;
    if (code === 0xc2 || code === 0xc3) return code === 0xc3;
    const text = this.#size(TEXT, code);
    if (text !== null) return this.#text(text);
    const bytes = this.#size(BYTES, code);
    if (bytes !== null) return this.#take(bytes);
    const items = this.#size(LIST, code);
    if (items !== null) return this.#list(items, depth);
    const entries = this.#size(MAP, code);
    if (entries !== null) return this.#map(entries, depth);
    throw new NotCanonical(`no value begins with ${code}`);
  }

  #list(count: number, depth: number): Canonical[] {
    checkDepth(depth, count);
    const items: Canonical[] = [];
    for (let i = 0; i < count; i++) items.push(this.value(depth + 1));
    return items;
  }

  #map(count: number, depth: number): ReadonlyMap<string, Canonical> {
    checkDepth(depth, count);
    const map = new Map<string, Canonical>();
    let before: Uint8Array | null = null;
    for (let i = 0; i < count; i++) {
      const size = this.#size(TEXT, this.#take(1)[0]!);
      if (size === null) throw new NotCanonical("a key is no text");
      const key = this.#bytes.subarray(this.#at, this.#at + size);
      const name = this.#text(size);
      if (before !== null && compared(before, key) >= 0) {
        throw new NotCanonical("keys out of order");
      }
      before = key;
      map.set(name, this.value(depth + 1));
    }
    return map;
  }

  #text(size: number): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.#take(size));
    } catch (fault) {
      if (fault instanceof TypeError) throw new NotCanonical("a text is not UTF-8");
      throw fault;
    }
  }

  #integer(code: number): number | bigint {
    const isNegative = code >= 0xd0;
    const bytes = 1 << (code - (isNegative ? 0xd0 : 0xcc));
    let value = 0n;
    for (const byte of this.#take(bytes)) value = (value << 8n) | BigInt(byte);
    if (isNegative) value = BigInt.asIntN(8 * bytes, value);
    const half = BigInt(4 * bytes); // bits of the next smaller form
    const isShortest = isNegative
      ? value < (bytes === 1 ? -32n : -(1n << (half - 1n)))
      : value >= (bytes === 1 ? 128n : 1n << half);
    if (!isShortest) throw new NotCanonical("not the shortest encoding");
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }

  /** The size that a code of this family tells; null for another's. */
  #size({ fixed, fixedMax, codes }: Family, code: number): number | null {
    if (fixedMax >= 0 && code >= fixed && code <= fixed + fixedMax) return code - fixed;
    const step = codes.indexOf(code);
    if (step < 0) return null;
    const width = WIDTHS[step]!;
    this.#take(width);
    const at = this.#at - width;
    const size = width === 1 ? this.#view.getUint8(at)
      : width === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
    const smaller = step > 0 && codes[step - 1] !== null ? 2 ** (8 * WIDTHS[step - 1]!) - 1
      : fixedMax;
    if (size <= smaller) throw new NotCanonical("not the shortest encoding");
    return size;
  }

  #take(count: number): Uint8Array {
    if (count > this.#bytes.length - this.#at) throw new NotCanonical("ends inside of a value");
    this.#at += count;
    return this.#bytes.subarray(this.#at - count, this.#at);
  }
}

function isMap(
  value: readonly Canonical[] | ReadonlyMap<string, Canonical>,
): value is ReadonlyMap<string, Canonical> {
  return value instanceof Map;
}

function checkDepth(depth: number, size: number): void {
  if (depth >= DEPTH_MAX && size > 0) throw new NotCanonical(`nested deeper than ${DEPTH_MAX}`);
}

function utf8(text: string): Uint8Array {
  // what is not well formed would be replaced silently
  if (/\p{Surrogate}/u.test(text)) throw new NotCanonical("a text is not UTF-8");
  return new TextEncoder().encode(text);
}

/** Bytes in the order of UTF-8, which is that of code points: Python's. */
function compared(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    if (a[i] !== b[i]) return a[i]! - b[i]!;
  }
  return a.length - b.length;
}
