/**
 * Compressed twins of the large files of a built page, and what the whole of it weighs on the wire.
 *
 * A gateway sends `name.br` or `name.gz` in place of `name` to whom takes it. What hardly shrinks,
 * as archives do, gets no twin. A page that weighs too much stops the build.
 */

import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import type { Plugin } from "vite";

const LARGE_BYTES = 16_384;
const WORTH_IT = 0.9; // of the file's size
const WIRE_BYTES_MAX = 20_000_000;
const CODINGS: Record<string, (content: Uint8Array) => Uint8Array> = {
  // 11 would take 31 s of CPU in place of 4 for Pyodide, and save 0.35 MB of 8.3
  ".br": (content) => brotliCompressSync(content, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 9,
      [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
      [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
    },
  }),
  ".gz": (content) => gzipSync(content, { level: 9 }),
};

export interface Weight {
  readonly files: number;
  readonly bytes: number;
  readonly wireBytes: number; // each file in its smallest coding
}

/** Writes the twins beside the files of `folder`, which has none yet. */
export function writeTwins(folder: string): Weight {
  let files = 0, bytes = 0, wireBytes = 0;
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    const path = join(folder, name);
    if (!statSync(path).isFile()) continue;
    const content = readFileSync(path);
    let smallest = content.length;
    for (const [ending, coded] of content.length < LARGE_BYTES ? [] : Object.entries(CODINGS)) {
      const twin = coded(content);
      if (twin.length > WORTH_IT * content.length) continue;
      writeFileSync(path + ending, twin);
      smallest = Math.min(smallest, twin.length);
    }
    files += 1;
    bytes += content.length;
    wireBytes += smallest;
  }
  return { files, bytes, wireBytes };
}

/** Stops a build whose files weigh more than `wireBytesMax`, each in its smallest coding. */
export function codings(name = "page", wireBytesMax = WIRE_BYTES_MAX): Plugin {
  let folder = "";
  return {
    name: "codings",
    apply: "build",
    configResolved({ root, build }) {
      folder = join(root, build.outDir);
    },
    writeBundle() {
      const { files, bytes, wireBytes } = writeTwins(folder);
      const told = `${files} files, ${mb(bytes)}; on the wire ${mb(wireBytes)}`;
      if (wireBytes > wireBytesMax) {
        throw new Error(`the ${name} is too heavy: ${told}, at most ${mb(wireBytesMax)}`);
      }
      console.log(`${name}: ${told}`);
    },
  };
}

function mb(bytes: number): string {
  return `${(bytes / 1e6).toFixed(bytes < 1e6 ? 2 : 1)} MB`;
}
