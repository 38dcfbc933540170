/**
 * Practice pieces: gradients whose digests are known, each made from its seed alone.
 *
 * Every number is an integer scaled by a power of two, so any language makes the same bits. The
 * digests in known_answers.json are CPython's; a test of the Python package holds them to it.
 */

import answers from "./known_answers.json";
import type { GradientTask, Model, Tensor } from "./protocol";

const VOCABULARY = 256;
const WEIGHT_SCALE = 2 ** -18; // 16-bit integers become weights within +-0.125
const SEED_STEP = 0x9e3779b1; // odd: consecutive indices land far apart

export interface KnownAnswer {
  readonly seed: number;
  readonly width: number;
  readonly heads: number;
  readonly depth: number;
  readonly windows: number;
  readonly tokens: number; // of a window, and the model's context
  readonly digest: string; // of the gradient
}

export const KNOWN_ANSWERS: readonly KnownAnswer[] = answers;

/** 32 mixed bits of one index: the finaliser of MurmurHash3 (Appleby, public domain). */
export function mixed(seed: number, index: number): number {
  let h = (Math.imul(index, SEED_STEP) + seed) | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

/** The daemon's byte GPT: the tensors of its ModelConfig, in their order. */
export function byteGpt({ width, heads, depth, tokens }: KnownAnswer): Model {
  const tensors: Tensor[] = [
    ["embedding", [VOCABULARY, width]],
    ["position", [tokens, width]],
  ];
  for (let layer = 0; layer < depth; layer++) {
    tensors.push(
      [`blocks.${layer}.attention.qkv`, [width, 3 * width]],
      [`blocks.${layer}.attention.out`, [width, width]],
      [`blocks.${layer}.mlp.up`, [width, 4 * width]],
      [`blocks.${layer}.mlp.down`, [4 * width, width]],
    );
  }
  return { kind: "byte_gpt", depth, heads, tensors };
}

export function parameterCount(model: Model): number {
  return model.tensors.reduce((sum, [, shape]) => sum + shape.reduce((a, b) => a * b, 1), 0);
}

/** Indices run through the weights, then through windows of tokens + 1 bytes. */
export function taskOf(answer: KnownAnswer): GradientTask {
  const { seed, windows, tokens } = answer;
  const model = byteGpt(answer);
  const count = parameterCount(model);
  const weightAt = (i: number): number => (mixed(seed, i) >> 16) * WEIGHT_SCALE;
  const byteAt = (row: number, t: number): number =>
    mixed(seed, count + row * (tokens + 1) + t) & (VOCABULARY - 1);
  const bytes = (shift: number): Int32Array =>
    Int32Array.from({ length: windows * tokens }, (_, i) =>
      byteAt(Math.floor(i / tokens), (i % tokens) + shift));
  return {
    kind: "gradient",
    model,
    weights: Float32Array.from({ length: count }, (_, i) => weightAt(i)),
    batch: { rows: windows, inputs: bytes(0), targets: bytes(1) },
  };
}
