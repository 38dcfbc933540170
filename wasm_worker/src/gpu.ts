/**
 * The matrix product on WebGPU, for adapters that give the bits of the plain loop; others are
 * refused. WebGPU answers later, so whoever calls it from Python must be able to wait.
 */

import source from "../kernels/matmul.wgsl?raw";
import { mixed } from "./known_answers";
import { bitsOf, plainMatmul, wildNumbers, type Sizes } from "./plain";

// the browser's own constants, which TypeScript's library does not know yet
declare const GPUBufferUsage: Record<
  "MAP_READ" | "COPY_SRC" | "COPY_DST" | "STORAGE" | "UNIFORM", number
>;
declare const GPUMapMode: Record<"READ", number>;

const TILE = 8; // rows and columns of a workgroup, as in the kernel

export type GpuProduct = (a: Float32Array, b: Float32Array, sizes: Sizes) => Promise<Float32Array>;

/** Opens an adapter and tries it. Throws, in words, if there is none or its bits are others. */
export async function openGpu(gpu: GPU | undefined): Promise<GpuProduct> {
  const adapter = await gpu?.requestAdapter();
  if (!adapter) throw new Error("this browser offers no WebGPU adapter");
  const product = withInfinities(productOn(await adapter.requestDevice()));
  const fault = await faultOf(product);
  if (fault !== null) {
    const { vendor, architecture, description } = adapter.info;
    const name = [vendor, architecture, description].filter(Boolean).join(" ");
    throw new Error(`the adapter ${name} ${fault}`);
  }
  return product;
}

/** What is wrong with a product, in words; null if its bits are right. */
export async function faultOf(product: GpuProduct): Promise<string | null> {
  const sizes = { groups: 2, rows: 11, inner: 67, columns: 13 };
  const a = wildNumbers(1, sizes.groups * sizes.rows * sizes.inner);
  const b = wildNumbers(2, sizes.groups * sizes.inner * sizes.columns);
  const trials: [Float32Array, Float32Array, string][] = [
    [a, b, "rounds otherwise"],
    [a, b.map(() => -0), "mistakes the signs of zeros"],
    [a.map((x) => x * 2 ** 60), b.map((x) => x * 2 ** 60), "mistakes what is too large"],
  ];
  // products and sums at and around the smallest normal number, and operands beneath it
  for (const [left, right] of [[0, -110], [-70, -70], [0, -140], [-140, 0], [-60, -60]] as const) {
    const [tinyA, tinyB] = [a.map((x) => x * 2 ** left), b.map((x) => x * 2 ** right)];
    trials.push([tinyA, tinyB, "mistakes subnormal numbers"]);
  }
  // products of half a unit and odd many: each is a tie
  const [oddA, oddB] = [oddHalves(3, a.length), oddHalves(4, b.length)];
  trials.push([oddA, oddB, "mistakes subnormal numbers"]);
  for (const [left, right, fault] of trials) {
    const zeros = new Float32Array(sizes.groups * sizes.rows * sizes.columns);
    const expected = bitsOf(plainMatmul(left, right, zeros, sizes));
    const found = bitsOf(await product(left, right, sizes));
    // the bits of what is no number differ between machines, and no answer holds any
    const isSame = (word: number, at: number): boolean =>
      word === found[at] || (isNoNumber(word) && isNoNumber(found[at]!));
    if (!expected.every(isSame)) return fault;
  }
  return null;
}

function oddHalves(seed: number, count: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => ((mixed(seed, i) & 15) | 1) * 2 ** -75);
}

function isNoNumber(bits: number): boolean {
  return (bits & 0x7fffffff) > 0x7f800000;
}

/** WGSL says nothing of infinities: where there are any, the plain loop is right, if slow. */
function withInfinities(product: GpuProduct): GpuProduct {
  return async (a, b, sizes) => {
    const result = await product(a, b, sizes);
    if ([a, b, result].every((each) => each.every(Number.isFinite))) return result;
    return plainMatmul(a, b, new Float32Array(result.length), sizes);
  };
}

function productOn(device: GPUDevice): GpuProduct {
  const pipeline = device.createComputePipeline({
    layout: "auto",
    compute: { module: device.createShaderModule({ code: source }) },
  });

  function buffer(usage: number, bytes: number, content?: BufferSource): GPUBuffer {
    const made = device.createBuffer({ size: bytes, usage: usage | GPUBufferUsage.COPY_DST });
    if (content) device.queue.writeBuffer(made, 0, content);
    return made;
  }

  return async (a, b, { groups, rows, inner, columns }) => {
    const count = groups * rows * columns;
    if (count * inner === 0) return new Float32Array(count);
    const { STORAGE, UNIFORM, COPY_SRC, MAP_READ } = GPUBufferUsage;
    const sums = buffer(STORAGE | COPY_SRC, 4 * count);
    const result = buffer(MAP_READ, 4 * count);
    const buffers = [
      buffer(STORAGE, a.byteLength, a as BufferSource),
      buffer(STORAGE, b.byteLength, b as BufferSource),
      sums,
      buffer(UNIFORM, 16, Uint32Array.of(rows, inner, columns, 0)),
    ];
    const commands = device.createCommandEncoder();
    const pass = commands.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: buffers.map((each, binding) => ({ binding, resource: { buffer: each } })),
    }));
    pass.dispatchWorkgroups(Math.ceil(columns / TILE), Math.ceil(rows / TILE), groups);
    pass.end();
    commands.copyBufferToBuffer(sums, 0, result, 0, 4 * count);
    device.queue.submit([commands.finish()]);
    await result.mapAsync(GPUMapMode.READ);
    const copy = new Float32Array(result.getMappedRange().slice(0));
    for (const each of [...buffers, result]) each.destroy();
    return copy;
  };
}
