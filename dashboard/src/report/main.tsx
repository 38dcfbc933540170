/** Draws the run whose story stands in the page as data: simnet/results/report.py puts it there. */

import { render } from "preact";
import "../page.css";
import "./report.css";
import { Page } from "./page";
import type { Story } from "./story";

const place = document.getElementById("page"), told = document.getElementById("story")?.textContent;
if (place === null || told === null || told === undefined) throw new Error("the page has no story");
place.replaceChildren();
render(<Page story={JSON.parse(told) as Story} />, place);
