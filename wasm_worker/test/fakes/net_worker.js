/** In place of the net worker: says what it is led to, and tells what it was told. */

const channel = new BroadcastChannel("lead");
let isOpen = false; // between a join and what ends it: of several tabs one is meant

addEventListener("message", ({ data }) => {
  channel.postMessage({ from: "net", message: data });
  if (data.type === "join") isOpen = true;
  if (data.type === "leave") {
    if (isOpen) postMessage({ type: "left", reason: "left", words: "", againInMs: null });
    isOpen = false;
  }
  if (data.type === "erase") postMessage({ type: "erased" });
  if (data.type === "export") {
    postMessage({ type: "exported", name: "daa-volunteer-5e5e.pem", file: "" });
  }
});

channel.addEventListener("message", ({ data }) => {
  if (data.to !== "net" || !isOpen) return;
  if (data.message === "die") throw new Error("the memory is full");
  if (data.message.type === "left") isOpen = false;
  postMessage(data.message);
});
