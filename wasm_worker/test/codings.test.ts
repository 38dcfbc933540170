import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { afterEach, beforeEach, expect, test } from "vitest";
import { writeTwins } from "../codings";

const TEXT = Buffer.from("the same words again and again, ".repeat(4_000));
const NOISE = crypto.getRandomValues(new Uint8Array(60_000));
let folder = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "page-"));
});

afterEach(() => rmSync(folder, { recursive: true }));

test("large files that shrink get twins with the same content, and nothing else does", () => {
  mkdirSync(join(folder, "deep"));
  writeFileSync(join(folder, "deep", "text.js"), TEXT);
  writeFileSync(join(folder, "packed.zip"), NOISE);
  writeFileSync(join(folder, "small.css"), "a {}");
  const { files, bytes, wireBytes } = writeTwins(folder);
  expect(readdirSync(folder).sort()).toEqual(["deep", "packed.zip", "small.css"]);
  expect(readdirSync(join(folder, "deep")).sort()).toEqual(["text.js", "text.js.br", "text.js.gz"]);
  const twin = readFileSync(join(folder, "deep", "text.js.br"));
  expect(brotliDecompressSync(twin).equals(TEXT)).toBe(true);
  const other = readFileSync(join(folder, "deep", "text.js.gz"));
  expect(gunzipSync(other).equals(TEXT)).toBe(true);
  expect([files, bytes]).toEqual([3, TEXT.length + NOISE.length + 4]);
  expect(wireBytes).toBe(Math.min(twin.length, other.length) + NOISE.length + 4);
});
