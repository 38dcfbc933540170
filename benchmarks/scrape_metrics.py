"""How long a scrape of /metrics takes at a daemon that trains.

Run: python benchmarks/scrape_metrics.py DIR HOST:PORT, beside `daa-node run --dir DIR` whose
config.yaml has `api: {listen: HOST:PORT}`. It fails where half of them take SCRAPE_MS_MAX:
the slowest tell more of what else the machine does.
"""

import http.client
import sys
import time
from pathlib import Path

SCRAPES = 150  # fewer than REQUESTS_MAX of one connection
PAUSE_S = 0.04  # no more than the API answers in a second
SCRAPE_MS_MAX = 20.0


def main(directory: str, listens: str) -> int:
    token = (Path(directory) / "api-read.token").read_text().strip()
    typical = 0.0
    for path in ("/livez", "/v1/status", "/metrics"):
        connection = http.client.HTTPConnection(listens)
        took_ms, size_bytes = [], 0
        for _ in range(SCRAPES):
            began_s = time.perf_counter()
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            size_bytes = len(answer.read())
            took_ms.append((time.perf_counter() - began_s) * 1e3)
            if answer.status != 200:
                print(f"{path} answered {answer.status}")
                return 1
            time.sleep(PAUSE_S)
        took_ms.sort()
        half, most = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
        print(f"{path:<11} {size_bytes:>6} bytes  p50 {half:5.1f} ms  p99 {most:5.1f} ms")
        typical = half
    return int(typical >= SCRAPE_MS_MAX)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
