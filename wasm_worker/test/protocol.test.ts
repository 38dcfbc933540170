import { expect, test } from "vitest";
import { KNOWN_ANSWERS, byteGpt, mixed, parameterCount, taskOf } from "../src/known_answers";
import { inWords, tooMuch, type Practice } from "../src/protocol";

const TASK = taskOf(KNOWN_ANSWERS[0]!);

test("what fits a page is not too much, and what does not fit is told", () => {
  expect(tooMuch(TASK)).toBeNull();
  const large: Practice = { ...TASK, weights: new Float32Array((1 << 24) + 1) };
  expect(tooMuch(large)).toBe("16777217 parameters, at most 16777216");
  const inputs = new Int32Array((1 << 20) + 1);
  const long: Practice = { ...TASK, batch: { ...TASK.batch, inputs } };
  expect(tooMuch(long)).toBe("1048577 inputs, at most 1048576");
});

test("an error becomes one line", () => {
  const traceback = new Error('Traceback:\n  File "x"\nNotFinite: the loss is nan\n');
  expect(inWords(traceback)).toBe("NotFinite: the loss is nan");
  expect(inWords(new RangeError(""))).toBe("RangeError");
  expect(inWords("gone")).toBe("gone");
});

test("a practice piece is made of the numbers that its seed gives", () => {
  const known = KNOWN_ANSWERS[0]!;
  const count = parameterCount(byteGpt(known));
  expect(TASK.weights).toHaveLength(count);
  expect(TASK.weights[3]! * 2 ** 18).toBe(mixed(known.seed, 3) >> 16);
  const row = TASK.batch.inputs.slice(0, known.tokens);
  expect(row.slice(1)).toEqual(TASK.batch.targets.slice(0, known.tokens - 1));
  expect(row[0]).toBe(mixed(known.seed, count) & 255);
});
