/**
 * Where each vertex of a checkpoint graph stands: the oldest left, and a lane for each branch.
 *
 * A lane is what still waits for a child to the right: the newest vertex of a branch. A vertex
 * takes the lane of its first parent if that is free, and else a new one; lanes of other parents
 * end in it.
 */

export interface DagVertex {
  readonly id: string;
  readonly parents: readonly string[];
  readonly height: number;
}

export interface Placed<V extends DagVertex> {
  readonly vertex: V;
  readonly column: number;
  readonly lane: number;
}

/** From a parent to its child; `fromColumn` -1: the parent is older than what is drawn. */
export interface Edge {
  readonly child: string;
  readonly fromColumn: number;
  readonly fromLane: number;
  readonly toColumn: number;
  readonly toLane: number;
}

export interface DagLayout<V extends DagVertex> {
  readonly places: readonly Placed<V>[];
  readonly edges: readonly Edge[];
  readonly columns: number;
  readonly lanes: number;
}

/** `vertices` in any order; parents that are not among them lead out of the drawing. */
export function laidOut<V extends DagVertex>(vertices: readonly V[]): DagLayout<V> {
  const inOrder = [...vertices].sort((a, b) => a.height - b.height || (a.id < b.id ? -1 : 1));
  const heights = [...new Set(inOrder.map(({ height }) => height))];
  const columnOf = new Map(heights.map((height, column) => [height, column]));
  const ends: (string | null)[] = []; // by lane: the vertex that it has come to
  const placed = new Map<string, Placed<V>>();
  const left = new Map<string, number>(); // how many children of a vertex are still to come
  for (const { parents } of inOrder) {
    for (const parent of parents) left.set(parent, (left.get(parent) ?? 0) + 1);
  }
  const edges: Edge[] = [];
  for (const vertex of inOrder) {
    const parents = vertex.parents.flatMap((id) => placed.get(id) ?? []);
    const lane = laneFor(parents.map((parent) => parent.vertex.id), ends);
    const column = columnOf.get(vertex.height) ?? 0;
    for (const id of vertex.parents) {
      const parent = placed.get(id);
      edges.push({
        child: vertex.id, fromColumn: parent?.column ?? -1, fromLane: parent?.lane ?? lane,
        toColumn: column, toLane: lane,
      });
      left.set(id, (left.get(id) ?? 1) - 1);
      const end = ends.indexOf(id);
      if (end >= 0 && left.get(id) === 0) ends[end] = null;
    }
    ends[lane] = (left.get(vertex.id) ?? 0) > 0 ? vertex.id : null;
    placed.set(vertex.id, { vertex, column, lane });
  }
  const places = [...placed.values()];
  return {
    places, edges, columns: heights.length,
    lanes: 1 + Math.max(-1, ...places.map(({ lane }) => lane)),
  };
}

/** The first parent's own lane, if nobody has gone on in it yet; else the lowest that is free. */
function laneFor(parents: readonly string[], ends: readonly (string | null)[]): number {
  const [first] = parents;
  const own = first === undefined ? -1 : ends.indexOf(first);
  if (own >= 0) return own;
  const free = ends.findIndex((end) => end === null);
  return free >= 0 ? free : ends.length;
}
