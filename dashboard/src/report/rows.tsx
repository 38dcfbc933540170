/** A table of figures; on a narrow page each of its rows becomes a block. */

export interface Row {
  readonly key: string;
  readonly cells: readonly string[]; // the first one names the row
}

export function Rows(
  { caption, columns, rows }: {
    caption: string; columns: readonly string[]; rows: readonly Row[];
  },
) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      {/* roles: a table whose rows are blocks is none to a screen reader */}
      <table class="nodes" role="table">
        <caption class="unseen">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((name) => <th key={name} scope="col" role="columnheader">{name}</th>)}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map(({ key, cells: [name, ...cells] }) => (
            <tr key={key} role="row">
              <th scope="row" role="rowheader" data-label={columns[0]}>{name}</th>
              {cells.map((cell, at) => (
                <td key={columns[at + 1]} role="cell" data-label={columns[at + 1]}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
