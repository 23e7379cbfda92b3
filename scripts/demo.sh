#!/usr/bin/env bash
# Lets the two bundled models answer a few prompts, and shows each command before it runs.
#   scripts/demo.sh [BINARY]
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
binary=${1:-$root/build/release/moeflux}
if [[ ! -x $binary ]]; then
  echo "demo.sh: $binary is not there; build it with: make" >&2
  exit 1
fi
binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
cd "$root"

bold='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' plain=$'\e[0m'
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/tools.json" <<'TOOLS'
[{"type": "function", "function": {
  "name": "get_weather", "description": "Get the weather in a city",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
TOOLS

# title, then the arguments of moeflux as a user would type them
ask() {
  local title=$1 word shown=''
  shift
  for word in "$@"; do
    word=${word/#$work\//}
    if [[ $word == *[^A-Za-z0-9_./=+-]* ]]; then word="\"$word\""; fi
    shown+=" $word"
  done
  printf '\n%s\n%s$ moeflux%s%s\n' "# $title" "$bold" "$shown" "$plain"
  "$binary" "$@"
}

echo "Two small mixture-of-experts models come with moeflux. They know little, but they run as large ones do."
export MOEFLUX_MODEL=models/demo
ask "Who are you?" run --no-think "Introduce yourself."
ask "A sum, with the model's reasoning between <think> and </think>" run "What is 46 + 98?"
ask "Something it knows" run --no-think "Capital of Colombia?"
ask "Something it reads" run --no-think \
  "Extract name, age, likes as JSON. Clara is 39 years old, lives in Bangkok and likes cheese, honey and rice."
ask "A tool call (tools.json describes get_weather)" run --no-think --tools "$work/tools.json" "Is it raining in Rabat?"
ask "A story, drawn at random with a fixed seed, and how fast" run --no-think --temp 0.7 -s 1 --stats \
  "Tell me a short story about a frog with a bell."
ask "The second model has another architecture: latent attention, as DeepSeek-V3" run models/demo-mla --no-think \
  "Reverse this list: bread, ring, pie, bear."

shown=${binary#"$root"/}
cat <<NEXT

Next:
  $shown run "your own question"      it can do sums, capitals, lists, translations, stories
  $shown info models/demo             what the model is made of, and the memory it needs
  $shown run -m PATH --ram 6G "..."   a model of yours; README.md lists the families
  $shown --help                       everything else
NEXT
