/**
 * What the page and its compute worker say to each other.
 *
 * The worker takes one task at a time and answers each of them, by `id`: never with silence.
 * Whoever has a task sends it; the worker does not know where tasks come from. The early worker,
 * which proves until a worker with Python is ready, says `proves` in place of `ready`.
 *
 *   page                         worker
 *     load       ------------->
 *                <-------------  loading, again and again; then ready, or failed (id null)
 *     task a     ------------->
 *                <-------------  done a, or failed a
 *     practice 1 ------------->
 *                <-------------  practised 1, or failed 1
 *
 * How a task is computed is told in docs/volunteers.md; what practice holds is recompute.py's.
 * Vectors (D,) hold D parameters.
 */

/** Which routine multiplies matrices. All give the same bits; they differ in speed. */
export type Matmul = "wasm" | "numpy" | "webgpu";

export type Tensor = readonly [name: string, shape: readonly number[]];

/** recompute.Model: its tensors in the order in which they lie in a vector (D,). */
export interface Model {
  readonly kind: "byte_gpt" | "mlp";
  readonly depth: number;
  readonly heads: number;
  readonly tensors: readonly Tensor[];
}

/** recompute.Batch, flat: `rows` windows of tokens, or pictures, one after the other. */
export interface Batch {
  readonly rows: number;
  readonly inputs: Int32Array | Float32Array;
  readonly targets: Int32Array;
}

/** recompute.Inner, under its own names. */
export interface Inner {
  readonly lr: number;
  readonly lr_final_fraction: number;
  readonly warmup_steps: number;
  readonly total_steps: number;
  readonly weight_decay: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly grad_clip: number;
}

/** Loss and gradient of one batch. The outcome is the gradient. */
export interface GradientTask {
  readonly kind: "gradient";
  readonly model: Model;
  readonly batch: Batch;
  readonly weights: Float32Array;
}

/** One inner step. The outcome is weights, first and second moments, one after the other. */
export interface StepTask {
  readonly kind: "step";
  readonly model: Model;
  readonly batch: Batch;
  readonly weights: Float32Array;
  readonly first: Float32Array;
  readonly second: Float32Array;
  readonly adamSteps: number; // that are in the moments
  readonly scheduleStep: number; // since the genesis
  readonly inner: Inner;
}

/** Work whose answer is known beforehand, or that a test compares. */
export type Practice = GradientTask | StepTask;

export interface Answer {
  readonly digest: string; // BLAKE3 of the outcome's float32, little-endian, in hex
  readonly loss: number | null; // nats a prediction, of a gradient
}

/** What computes here. Two pages agree bit for bit if both files are the same for both. */
export interface Version {
  readonly recompute: string; // BLAKE3 of recompute.py, in hex
  readonly pieces: string; // and of pieces.py
  readonly pyodide: string;
  readonly numpy: string;
  readonly matmul: Matmul;
}

export type ToWorker =
  | { readonly type: "load"; readonly runtime: string; readonly matmul: Matmul }
  | { readonly type: "task"; readonly id: string; readonly task: Piece }
  | { readonly type: "practice"; readonly id: number; readonly task: Practice };

export type LoadingStep = "python" | "numpy" | "kernels";

export type FromWorker =
  | { readonly type: "loading"; readonly step: LoadingStep }
  | { readonly type: "ready"; readonly version: Version; readonly loadMs: number }
  | { readonly type: "proves" }
  | {
    readonly type: "done"; readonly id: string; readonly result: readonly Canonical[];
    readonly ms: number;
  }
  | {
    readonly type: "practised"; readonly id: number; readonly answer: Answer;
    readonly ms: number;
  }
  | { readonly type: "failed"; readonly id: number | string | null; readonly reason: string };

/** What canonical msgpack can say. A float64 travels as its 8 bytes, big-endian. */
export type Canonical =
  | null | boolean | number | bigint | string | Uint8Array
  | readonly Canonical[] | ReadonlyMap<string, Canonical>;

/** `[tasks, agreed, disagreed]` of this name at this gateway. */
export type Lifetime = readonly [tasks: number, agreed: number, disagreed: number];

/** One piece of work, whole: nothing else is needed for its result. */
export interface Piece {
  readonly kind: string;
  readonly parameters: readonly Canonical[];
  readonly blobs: readonly Uint8Array[];
}

/** A piece as the gateway gives it; `id` in hex, the deadline counts from when it came. */
export interface GivenTask extends Piece {
  readonly id: string;
  readonly deadlineMs: number;
}

export interface Gateway {
  readonly chainId: string; // hex
  readonly nodeId: string; // hex
  readonly peerId: string;
  readonly protocolVersion: number;
  readonly site: string | null; // version of the page that it serves
  readonly address: string; // the one that was dialled
  readonly transport: string; // "ws" or "wss"
  readonly wanted: readonly string[]; // kinds
  readonly sessions: readonly [now: number, max: number];
}

/**
 * What the page and its net worker say to each other: it holds the keys and the one session.
 *
 *   page                     net worker
 *     join    ------------->
 *             <-------------  joining, again and again; then joined, or left
 *     ready   ------------->
 *             <-------------  task; then verdict or drop by the page
 *             <-------------  taken, at once; and again when it is known whether it agreed
 *     leave   ------------->
 *             <-------------  left; a session ends only by it, and `join` begins another one
 *
 * `export` and `erase` are of the volunteer's key, and answered by `exported`, `erased` or
 * `failed`; a page that erases leaves first.
 */
export type ToNet =
  | { readonly type: "join"; readonly kinds: readonly string[] }
  // 0: a pause
  | { readonly type: "ready"; readonly count: 0 | 1 | 2; readonly kinds: readonly string[] }
  | {
    readonly type: "verdict"; readonly task: string; readonly result: readonly Canonical[];
    readonly spentMs: number;
  }
  | { readonly type: "drop"; readonly task: string }
  | { readonly type: "leave" | "export" | "erase" };

export type JoiningStep = "keys" | "gateway" | "dial" | "hello";

export type FromNet =
  | { readonly type: "joining"; readonly step: JoiningStep }
  | {
    readonly type: "joined"; readonly name: string; readonly lifetime: Lifetime;
    readonly gateway: Gateway; readonly peers: number;
  }
  | { readonly type: "task"; readonly task: GivenTask }
  | {
    readonly type: "taken"; readonly task: string; readonly agreed: boolean | null;
    readonly lifetime: Lifetime;
  }
  | {
    readonly type: "left"; readonly reason: string; readonly words: string;
    readonly againInMs: number | null; // null: do not come back by yourself
  }
  | { readonly type: "exported"; readonly name: string; readonly file: string } // and content
  | { readonly type: "erased" }
  | { readonly type: "failed"; readonly reason: string };

const PARAMETERS_MAX = 1 << 24; // 64 MiB; a larger model is no work for a tab
const INPUTS_MAX = 1 << 20; // of a batch: 4,096 windows of 256 tokens

/** Why practice is too much for a page, in words; null if it is not. Python checks the rest. */
export function tooMuch(task: Practice): string | null {
  if (task.weights.length > PARAMETERS_MAX) {
    return `${task.weights.length} parameters, at most ${PARAMETERS_MAX}`;
  }
  if (task.batch.inputs.length > INPUTS_MAX) {
    return `${task.batch.inputs.length} inputs, at most ${INPUTS_MAX}`;
  }
  return null;
}

/** An error of whatever make, as one line for a person. */
export function inWords(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // a traceback of Python ends with the error itself
  const last = error.message.trimEnd().split("\n").at(-1) ?? "";
  return last === "" ? error.name : last;
}
