#!/bin/sh
# Prepares the node of one container, whose directory is $NODE: makes it, leaves its record at $RECORD
# where that is set, waits until the genesis is at $GENESIS, and takes it. Keys stay where they are
# made. A node that has its genesis is left as it is.
set -eu
# half a node, of a container that was killed in `init`: no network knows its keys
if [ -e "$NODE/VERSION.part" ] && [ ! -e "$NODE/VERSION" ]; then rm -r "$NODE"; fi
[ -e "$NODE/VERSION" ] || daa-node init --dir "$NODE"
[ ! -e "$NODE/genesis.json" ] || exit 0
if [ -n "${RECORD:-}" ]; then
  daa-node id --record --dir "$NODE" > "$RECORD.part"
  mv "$RECORD.part" "$RECORD"
fi
echo "waiting for $GENESIS" >&2
until [ -e "$GENESIS" ]; do sleep 1; done
cp "$GENESIS" "$NODE/genesis.part"
mv "$NODE/genesis.part" "$NODE/genesis.json"
