/** Practice by orders: compute workers of a test's own, in the page that it has open. */

/**
 * What the workers at `script` answered, one for each order in the JSON `orders`: the path of
 * Python's files, the product, and the tasks. Arrays in it are
 * {"Float32Array" | "Int32Array": base64}.
 */
export function answersTo(page, script, orders) {
  return page.evaluate(async ({ script, orders }) => {
    const kinds = { Float32Array, Int32Array };
    const arrays = (_, value) => {
      const [kind] = Object.keys(value ?? {}).filter((key) => key in kinds);
      if (!kind) return value;
      return new kinds[kind](Uint8Array.from(atob(value[kind]), (c) => c.charCodeAt(0)).buffer);
    };
    const answered = (worker) => new Promise((resolve, reject) => {
      worker.onerror = (event) => reject(new Error(event.message));
      worker.onmessage = ({ data }) => data.type === "loading" || resolve(data);
    });
    const answers = [];
    for (const { path, matmul, tasks } of JSON.parse(orders, arrays)) {
      const worker = new Worker(script, { type: "module" });
      const runtime = new URL(path, document.baseURI).href;
      worker.postMessage({ type: "load", runtime, matmul });
      answers.push([await answered(worker)]);
      for (const [id, task] of tasks.entries()) {
        worker.postMessage({ type: "practice", id, task });
        answers.at(-1).push(await answered(worker));
      }
      worker.terminate();
    }
    return answers;
  }, { script, orders });
}
