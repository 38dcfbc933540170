import { join } from "node:path";
import { expect, test } from "vitest";
import { licensesOf } from "../licenses";

test("whatever is in the page has its license beside it, and what builds it is not named", () => {
  const text = licensesOf(join(import.meta.dirname, ".."));
  for (const name of ["libp2p", "@noble/post-quantum", "hash-wasm", "pyodide"]) {
    expect(text).toMatch(new RegExp(`^${name} \\d`, "m"));
  }
  expect(text).toContain("Permission is hereby granted");
  expect(text).not.toContain("vitest");
});
