/**
 * In place of the early worker: proves when it is led to, and then answers at once.
 */

const channel = new BroadcastChannel("lead");

addEventListener("message", ({ data }) => {
  channel.postMessage({ from: "early", message: data });
  postMessage({ type: "done", id: data.id, result: [1], ms: 3 });
});

channel.addEventListener("message", ({ data }) => {
  if (data.to === "early") postMessage({ type: data.message });
});
channel.postMessage({ from: "early", message: { type: "begun" } });
