/** A checkpoint graph as it grows: the newest vertex is at the right, and in sight. */

import { useEffect, useRef } from "preact/hooks";
import { laidOut, type DagVertex, type Edge } from "./dag_layout";
import { DASH, Drawing } from "./drawing";

const COLUMN = 46, LANE = 58, LEFT = 26, TOP = 30, BOTTOM = 40, RADIUS = 8; // pixels

/** certified: a quorum signed it. merged: this node has it, and no quorum yet. decided: its set. */
export type VertexState = "certified" | "merged" | "decided";

export interface Checkpoint extends DagVertex {
  readonly state: VertexState;
  readonly isSnapshot: boolean; // its whole state lies here
  readonly disputes: readonly string[];
  readonly about: string; // what a pointer is told
  readonly contributions: number | null;
  readonly left: number; // certified contributions that were not merged
}

const STATE_WORDS: Readonly<Record<VertexState, string>> = {
  certified: "certified", merged: "merged, not certified yet",
  decided: "its set is decided, not merged yet",
};

export function Dag(
  { vertices, words, onPick }: {
    vertices: readonly Checkpoint[]; words: string; onPick?: (id: string) => void;
  },
) {
  const { places, edges, columns, lanes } = laidOut(vertices);
  const width = 2 * LEFT + Math.max(0, columns - 1) * COLUMN;
  const height = TOP + (lanes - 1) * LANE + BOTTOM;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.scrollLeft = box.current.scrollWidth;
  }, [columns]);
  const states = new Map(vertices.map(({ id, state }) => [id, state]));
  return (
    <Drawing
      words={words} table={() => tableOf(vertices, words)} below={<Legend />} sideways={box}
    >
      <svg class="dag" width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
        {edges.map((edge) => (
          <path
            key={`${edge.child} ${edge.fromColumn} ${edge.fromLane}`}
            class={`way ${states.get(edge.child) ?? ""}`} d={wayOf(edge)}
          />
        ))}
        {places.map(({ vertex, column, lane }) => (
          <Vertex
            key={vertex.id} vertex={vertex} x={LEFT + column * COLUMN} y={TOP + lane * LANE}
            onPick={onPick}
          />
        ))}
      </svg>
    </Drawing>
  );
}

function Vertex(
  { vertex, x, y, onPick }: {
    vertex: Checkpoint; x: number; y: number; onPick?: (id: string) => void;
  },
) {
  return (
    <g
      class={`vertex ${vertex.state}`} transform={`translate(${x} ${y})`}
      onClick={() => onPick?.(vertex.id)}
    >
      <title>{vertex.about}</title>
      {vertex.isSnapshot && <circle class="ring" r={RADIUS + 4} />}
      <circle class="body" r={RADIUS} />
      {vertex.disputes.length > 0 && <path class="dispute" d="M0-25l6 6-6 6-6-6z" />}
      <text y="25">{vertex.height}</text>
      {vertex.contributions !== null && (
        <text class="quiet" y="37">
          {vertex.left > 0 ? `${vertex.contributions - vertex.left}/` : ""}{vertex.contributions}
        </text>
      )}
    </g>
  );
}

function wayOf({ fromColumn, fromLane, toColumn, toLane }: Edge): string {
  const x = LEFT + toColumn * COLUMN, y = TOP + toLane * LANE;
  const fromX = fromColumn < 0 ? 0 : LEFT + fromColumn * COLUMN, fromY = TOP + fromLane * LANE;
  if (fromY === y) return `M${fromX} ${fromY}H${x}`;
  const bend = fromX + COLUMN / 2, atLaneX = Math.min(x, fromX + COLUMN);
  return `M${fromX} ${fromY}C${bend} ${fromY} ${bend} ${y} ${atLaneX} ${y}H${x}`;
}

function Legend() {
  return (
    <ul class="legend" aria-hidden="true">
      {(Object.keys(STATE_WORDS) as VertexState[]).map((state) => (
        <li key={state}>
          <svg class="dag" width="16" height="16" viewBox="-8 -8 16 16">
            <g class={`vertex ${state}`}><circle class="body" r="6" /></g>
          </svg>
          {STATE_WORDS[state]}
        </li>
      ))}
      <li>
        <svg class="dag" width="20" height="20" viewBox="-10 -10 20 20">
          <g class="vertex certified"><circle class="ring" r="9" /><circle class="body" r="5" /></g>
        </svg>
        its whole state is here
      </li>
      <li>
        <svg class="dag" width="14" height="14" viewBox="-7 -7 14 14">
          <path class="dispute" d="M0-6l6 6-6 6-6-6z" />
        </svg>
        disputed
      </li>
    </ul>
  );
}

function tableOf(vertices: readonly Checkpoint[], caption: string) {
  return {
    caption,
    columns: ["Height", "Vertex", "State", "On", "Contributions", "Not merged", "State here",
      "Disputes"],
    rows: [...vertices].sort((a, b) => b.height - a.height).map((vertex) => [
      String(vertex.height), vertex.id.slice(0, 8), STATE_WORDS[vertex.state],
      vertex.parents.map((id) => id.slice(0, 8)).join(", ") || DASH,
      vertex.contributions === null ? DASH : String(vertex.contributions),
      String(vertex.left), vertex.isSnapshot ? "yes" : "no",
      vertex.disputes.join("; ") || "none",
    ]),
  };
}
