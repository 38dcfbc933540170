/** One lane a node, over a stretch of time that can be brought closer. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Card, Empty } from "../card";
import { Drawing } from "../drawings/drawing";
import { scaleOf } from "../drawings/scale";
import { useScheme } from "../scheme";
import { count, nats } from "../words";
import {
  brokenAt, FORMS, inSeconds, LABEL_PX, LANE_PX, shapesOf, toldAt, TOP_PX, WORDS, type Shapes,
  type Tone,
} from "./lanes";
import { moved, whole, xOf, zoomed, type Span } from "./span";
import type { Fault, Lane, Story } from "./story";

const WIDTH_FIRST = 640; // before it is measured
const TICK_PX = 80;
const SCALE_MAX = 2; // dots to a pixel: more are not seen, and cost memory
const SHOWN: readonly Tone[] = [
  "view-even", "view-odd", "proposal", "notarize", "finalize", "nullify",
  "set", "result", "abort", "empty", "down", "fault", "broken",
];
// what lies below comes first
const PAINTED: readonly Tone[] = [
  "view-even", "view-odd", "down", "proposal", "notarize", "finalize", "nullify", "vote", "fault",
];
const STEPS: readonly (readonly [string, string, (span: Span, endMs: number) => Span])[] = [
  ["Closer", "Less time, larger", (span, endMs) => zoomed(span, 0.5, endMs)],
  ["Wider", "More time, smaller", (span, endMs) => zoomed(span, 2, endMs)],
  ["Earlier", "Half a picture back", (span, endMs) => moved(span, -0.5, endMs)],
  ["Later", "Half a picture on", (span, endMs) => moved(span, 0.5, endMs)],
  ["All", "The whole run", (_, endMs) => whole(endMs)],
];

export function Timeline({ story }: { story: Story }) {
  return (
    <Card id="timeline" title="Timeline" aside="one lane a node, in virtual time">
      {story.lanes.length === 0 ? <Empty>Nobody did anything that the trace tells of.</Empty>
        : <Lanes story={story} />}
    </Card>
  );
}

function Lanes({ story }: { story: Story }) {
  const { lanes, faults, broken, endMs } = story;
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(WIDTH_FIRST);
  const [span, setSpan] = useState(() => whole(endMs));
  const [said, setSaid] = useState("");
  const grip = useRef<{ x: number; span: Span } | null>(null);
  const scheme = useScheme();
  const faultsOf = useMemo(() => new Map(lanes.map(({ node }) => (
    [node, faults.filter(({ nodes }) => nodes.includes(node))]))), [lanes, faults]);
  const room = width - LABEL_PX;
  useEffect(() => {
    const place = box.current;
    if (place === null) return;
    const look = (): void => setWidth(Math.max(LABEL_PX + 120, Math.floor(place.clientWidth)));
    const sizes = new ResizeObserver(look);
    sizes.observe(place);
    look();
    return () => sizes.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current !== null) paint(canvas.current, story, faultsOf, span, width);
  }, [story, faultsOf, span, width, scheme]);
  const point = (event: PointerEvent): void => {
    const { left, top } = (event.currentTarget as Element).getBoundingClientRect();
    const x = event.clientX - left - LABEL_PX;
    if (grip.current !== null) {
      setSpan(moved(grip.current.span, (grip.current.x - x) / room, endMs));
      return;
    }
    const lane = lanes[Math.floor((event.clientY - top - TOP_PX) / LANE_PX)];
    const end = brokenAt(broken, x, span, room);
    if (end !== undefined) setSaid(`${end.name}: ${end.detail}`);
    else if (lane === undefined || x < 0) setSaid("");
    else setSaid(toldAt(lane, faultsOf.get(lane.node) ?? [], x, span, room));
  };
  return (
    <Drawing
      words={wordsOf(story)} table={() => tableOf(story)}
      below={<Below story={story} span={span} said={said} onSpan={setSpan} />}
    >
      <div
        ref={box} class="lanes"
        onPointerDown={(event) => {
          const { left } = event.currentTarget.getBoundingClientRect();
          grip.current = { x: event.clientX - left - LABEL_PX, span };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerUp={() => { grip.current = null; }}
        onPointerCancel={() => { grip.current = null; }}
        onPointerMove={point} onPointerLeave={() => setSaid("")}
      >
        <canvas ref={canvas} />
      </div>
    </Drawing>
  );
}

function Below(
  { story, span, said, onSpan }: {
    story: Story; span: Span; said: string; onSpan: (span: Span) => void;
  },
) {
  const left = [
    ...(story.lanesLeftOut > 0 ? [`${count(story.lanesLeftOut, "node")} without a lane: those whom `
      + "nothing befell; the table has all"] : []),
    ...(story.marksLeftOut > 0 ? [`${count(story.marksLeftOut, "mark")} too many for the lanes: `
      + "the oldest are left out"] : []),
  ];
  return (
    <>
      <p class="readout" aria-hidden="true">
        {said === "" ? `${inSeconds(span.fromMs)} to ${inSeconds(span.toMs)}` : said}
      </p>
      <div class="buttons" role="group" aria-label="What of the time is in sight">
        {STEPS.map(([name, title, step]) => (
          <button
            key={name} type="button" title={title} onClick={() => onSpan(step(span, story.endMs))}
          >
            {name}
          </button>
        ))}
      </div>
      <ul class="legend" aria-hidden="true">
        {SHOWN.map((tone) => (
          <li key={tone}><Swatch tone={tone} />{WORDS[tone]}</li>
        ))}
      </ul>
      {left.map((words) => <p key={words} class="words">{words}.</p>)}
    </>
  );
}

function Swatch({ tone }: { tone: Tone }) {
  const form = FORMS[tone];
  if (form === undefined) return <i class={`tone tone-${tone}`} />;
  return (
    <svg class={`form tone-${tone}`} width="12" height="12" viewBox="-6 -6 12 12">
      <path d={form.d} fill={form.isFilled ? "currentColor" : "none"} stroke="currentColor"
        stroke-width="1.6" />
    </svg>
  );
}

/** All of it: boxes first, so that marks lie over them. */
function paint(
  canvas: HTMLCanvasElement, { lanes, broken, endMs }: Story,
  faultsOf: ReadonlyMap<number, readonly Fault[]>, span: Span, width: number,
): void {
  const pen = canvas.getContext("2d");
  if (pen === null) return;
  const height = TOP_PX + LANE_PX * lanes.length, room = width - LABEL_PX;
  const scale = Math.min(SCALE_MAX, devicePixelRatio);
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const colour = coloursAt(canvas);
  pen.scale(scale, scale);
  pen.font = "12px system-ui, sans-serif";
  lanes.forEach((lane, row) => paintLabel(pen, lane, TOP_PX + row * LANE_PX, colour));
  pen.translate(LABEL_PX, 0);
  pen.beginPath();
  pen.rect(-4, 0, room + 4, height);
  pen.clip();
  const ticks = scaleOf([span.fromMs / 1_000, span.toMs / 1_000], room / TICK_PX).ticks;
  pen.textAlign = "center";
  for (const tick of ticks.filter((s) => s * 1_000 >= span.fromMs && s * 1_000 <= span.toMs)) {
    const x = xOf(tick * 1_000, span, room);
    pen.fillStyle = colour("line");
    pen.fillRect(x, TOP_PX - 5, 1, height);
    pen.fillStyle = colour("quiet");
    pen.textAlign = x < 16 ? "left" : x > room - 16 ? "right" : "center";
    pen.fillText(`${tick} s`, x, 12);
  }
  paintShapes(pen, lanes.map((lane, row) => (
    shapesOf(lane, row, faultsOf.get(lane.node) ?? [], span, room))), colour);
  pen.strokeStyle = colour("broken");
  pen.lineWidth = 2;
  pen.setLineDash([4, 3]);
  for (const { atMs } of broken) {
    if (atMs > endMs) continue;
    const x = xOf(atMs, span, room);
    pen.beginPath();
    pen.moveTo(x, TOP_PX - 6);
    pen.lineTo(x, height);
    pen.stroke();
  }
}

/** Tone by tone: a pen that changes its colour for each of 100,000 shapes takes seconds. */
function paintShapes(
  pen: CanvasRenderingContext2D, shapes: readonly Shapes[], colour: (of: string) => string,
): void {
  const boxes = shapes.flatMap((own) => own.boxes), marks = shapes.flatMap((own) => own.marks);
  for (const tone of PAINTED) {
    pen.fillStyle = colour(tone);
    pen.beginPath();
    for (const box of boxes) if (box.tone === tone) pen.rect(box.x, box.y, box.width, box.height);
    pen.fill();
  }
  pen.lineWidth = 1.6;
  for (const [tone, form] of Object.entries(FORMS)) {
    const path = new Path2D(form.d);
    pen.fillStyle = pen.strokeStyle = colour(tone);
    for (const { tone: own, x, y } of marks) {
      if (own !== tone) continue;
      pen.translate(x, y);
      if (form.isFilled) pen.fill(path);
      else pen.stroke(path);
      pen.translate(-x, -y);
    }
  }
}

function paintLabel(
  pen: CanvasRenderingContext2D, { node, liar }: Lane, top: number, colour: (of: string) => string,
): void {
  pen.fillStyle = colour("ink");
  pen.fillText(`node ${node}`, 0, top + (liar === null ? 19 : 14));
  if (liar === null) return;
  pen.fillStyle = colour("broken");
  pen.fillText(liar, 0, top + 26, LABEL_PX - 6);
}

/** As the style of this moment has them: the same classes colour the legend. */
function coloursAt(canvas: HTMLCanvasElement): (of: string) => string {
  const probe = document.createElement("i");
  canvas.after(probe);
  const found = new Map<string, string>();
  for (const of of [...Object.keys(WORDS), "ink", "quiet", "line"]) {
    probe.className = `tone tone-${of}`;
    found.set(of, getComputedStyle(probe).color);
  }
  probe.remove();
  return (of) => found.get(of) ?? "gray";
}

/** In one sentence, for whoever does not see it. */
function wordsOf({ lanes, faults, broken, endMs }: Story): string {
  const finals = lanes.reduce((sum, { finals: { at } }) => sum + at.length, 0);
  const end = broken[0];
  return `Timeline of ${count(lanes.length, "node")} over ${inSeconds(endMs)}: `
    + `${count(finals, "final block")} seen, ${count(faults.length, "fault")}. `
    + (end === undefined ? "Nothing broke." : `${end.name} broke at ${inSeconds(end.atMs)}.`);
}

function tableOf(story: Story) {
  return {
    caption: "What each node did",
    columns: ["Node", "Lies as", "Views", "Votes", "Of these nullify", "Final blocks", "Rounds",
      "Time without process", "Faults", "Newest loss, nats"],
    rows: story.nodes.map((row) => [
      `node ${row.node}`, row.liar ?? "honest", String(row.views), String(row.votes),
      String(row.nullified), String(row.finals), String(row.rounds), inSeconds(row.downMs),
      String(row.faults), nats(row.lossNats),
    ]),
  };
}
