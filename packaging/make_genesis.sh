#!/bin/sh
# Makes the genesis of one network, once: make_genesis.sh JOB.yaml GENESIS RECORD...
# Waits until each validator has left its record. A genesis that is there is left as it is.
set -eu
job=$1 genesis=$2
shift 2
[ ! -e "$genesis" ] || exit 0
for record; do
  until [ -e "$record" ]; do sleep 1; done
  shift
  set -- "$@" --validator "$record"
done
rm -f "$genesis.part"  # of a container that was killed here: nobody has seen it
daa-node genesis create "$job" "$@" --out "$genesis.part"
mv "$genesis.part" "$genesis"
