# The report of tests/gpu/gpu_check.sh: results of tests, speeds compared with their targets, and tables. That script
# sources this file. The functions use its variables ($out, $report) and the files that its checks leave in $out.
# shellcheck shell=sh disable=SC2154

publish() { tee -a "$report"; }

# tally: prints how many of the tests in OUT/shard.*.txt passed, were skipped, failed or did not finish. This also works
# if the tests were stopped. Fails if a test did not pass, or if none did.
tally() {
  grep -hE -A 4 ': Failure$' "$out"/shard.*.txt | head -n 40
  grep -hE '^skipped: ' "$out"/shard.*.txt | sort | uniq -c
  for file in "$out"/shard.*.txt; do # output that ends early
    grep -q '^\[==========\].* ran\.' "$file" || {
      sanitizer_findings "$file"
      tail -n 4 "$file"
    }
  done
  errors=$(grep -hE '^[a-z0-9_]+ +cuda[a-z0-9_]* ' "$out"/shard.*.txt | sort -k 2,2 -k 7,7gr) # one line for each net
  if [ -n "$errors" ]; then
    echo "largest errors of logits, end points, loss, gradients, statistics (sorted by gradients):"
    echo "$errors" | tee "$out/errors.txt" | awk '++rows[$2] <= 3'
  fi
  cat "$out"/shard.*.txt | awk '
    /^\[==========\] Running/ { total += $3 }
    /^\[ RUN      \]/ { running[$4] = 1 }
    /^\[       OK \]/ { ++passed; delete running[$4] }
    /^\[  SKIPPED \].* ms\)$/ { ++skipped; delete running[$4] }
    /^\[  FAILED  \].* ms\)$/ { ++failed; sub(",$", "", $4); delete running[$4]; print "FAILED " $4 }
    END {
      for (name in running) print "not finished: " name
      printf "%d tests: %d passed, %d skipped, %d failed, %d not finished\n", total, passed, skipped, failed,
        total - passed - skipped - failed
      exit !(passed > 0 && passed + skipped == total)
    }'
}

# target WHAT NUMBER at_least|at_most [BOUND]: prints a row of the last table. An empty NUMBER means "not measured".
target() {
  awk -v what="$1" -v got="$2" -v how="$3" -v bound="${4:-}" 'BEGIN {
    good = how == "at_least" ? got + 0 >= bound + 0 : got + 0 <= bound + 0
    sub("_", " ", how)
    printf "| %s | %s | %s | %s |\n", what, got == "" ? "-" : sprintf("%.5g", got), bound == "" ? "-" : how " " bound,
      got == "" ? "not measured" : bound == "" ? "-" : good ? "yes" : "NO"
  }'
}

# has_results PREFIX: whether there are files PREFIX.*json. best PREFIX: the most images per second in these files.
has_results() {
  set -- "$1".*json
  [ -f "$1" ]
}
best() { cat "$1".*json 2>/dev/null | sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' | sort -n | tail -n 1; }

# ratio PREFIX OTHER: the ratio of their best results; nothing if one of them has no results.
ratio() { echo "$(best "$1") $(best "$2")" | awk 'NF == 2 { print $1 / $2 }'; }

# An awk function that returns the value of a name in a line of JSON.
# shellcheck disable=SC2016
field='function field(name, text) {
  if (!match($0, "\"" name "\": *\"?[^,\"}]*")) return ""
  text = substr($0, RSTART, RLENGTH)
  sub("^\"[^\"]*\": *\"?", "", text)
  return text
}'

# ratio_to_torch NET PRECISION: the ratio of our best result to PyTorch's, over the batch sizes that both have measured.
ratio_to_torch() {
  cat "$out/ours.$1.$2".*json "$out/peer.$1.$2.json" 2>/dev/null | awk "$field"'
    /"program"/ { theirs[field("batch_size")] = field("images_per_second"); next }
    { ours[field("batch_size")] = field("images_per_second") }
    END {
      for (batch in ours) {
        if (!(batch in theirs)) continue
        if (ours[batch] + 0 > our_best) our_best = ours[batch] + 0
        if (theirs[batch] + 0 > their_best) their_best = theirs[batch] + 0
      }
      if (their_best > 0) print our_best / their_best
    }'
}

# verdicts: prints the verdict of each section, from the last call that ran it.
verdicts() {
  [ -f "$report" ] || return 0
  printf '\n## Checks\n\n| check | verdict |\n|---|---|\n'
  awk '
    /^## .*: (passed|FAILED|skipped)/ {
      title = substr($0, 4)
      sub(": (passed|FAILED|skipped).*", "", title)
      if (!(title in verdict)) titles[++rows] = title
      verdict[title] = substr($0, length(title) + 6)
    }
    END { for (i = 1; i <= rows; ++i) printf "| %s | %s |\n", titles[i], verdict[titles[i]] }' "$report"
}

# speeds: prints a table with a row for each net, precision and batch size.
speeds() {
  cat "$out"/ours.*.json "$out"/peer.*.json 2>/dev/null | awk "$field"'
    {
      key = field("net") " | " field("precision") " | " field("batch_size")
      if (!(key in seen)) keys[++rows] = key
      seen[key] = 1
      if (/"program"/) theirs[key] = field("images_per_second") (field("compiled") == "false" ? " (uncompiled)" : "")
      else ours[key] = field("images_per_second") + 0
    }
    END {
      if (rows) print "\n## Images per second\n\n| net | precision | batch | carole | PyTorch |\n|---|---|---|---|---|"
      for (i = 1; i <= rows; ++i)
        printf "| %s | %s | %s |\n", keys[i], ours[keys[i]] == "" ? "-" : ours[keys[i]],
          theirs[keys[i]] == "" ? "-" : theirs[keys[i]]
    }'
}

# mlperf_target TITLE NET IMAGES: prints the row that compares a net with the best result of MLPerf 4.0 for one H200.
mlperf_target() {
  has_results "$out/ours.$2.bf16" || return 0
  target "$1, bf16, images/s (80 % of MLPerf 4.0's best)" "$(best "$out/ours.$2.bf16")" at_least "$3"
}

# summary: prints the tables of what was measured, from the files in OUT. This also works if a check was stopped. It
# comes last, so that the end of the output is enough.
summary() {
  verdicts
  speeds
  printf '\n## Targets\n\n| what | measured | target | reached |\n|---|---|---|---|\n'
  # MLPerf trains ResNet-50 v1.5, which is our resnet50: 7,945 images/s. An image takes 24.3 GFLOP there and 20.7 in the
  # smaller net of TF-Slim, so the second target is higher by that ratio.
  case $CAROLE_GPU in
    *H200*)
      mlperf_target "resnet50 (v1.5)" resnet50 6356
      mlperf_target "resnet_v1_50, scaled by the GFLOP of v1.5" resnet_v1_50 7461
      ;;
  esac
  for words in "resnet_v1_50 bf16 1.2" "resnet_v1_50 tf32" "resnet_v1_50 fp32" \
    "vgg_16 bf16 1.2" "inception_v3 bf16 1.2" "mobilenet_v2 bf16 1.2"; do
    # shellcheck disable=SC2086
    set -- $words
    has_results "$out/ours.$1.$2" || continue
    [ "$CAROLE_HAS_TORCH" = yes ] || continue
    bound=${3:-} torch=PyTorch
    ! grep -qs '"compiled": false' "$out/peer.$1.$2.json" || bound='' torch="PyTorch uncompiled" # not its best
    target "$1, $2, carole / $torch" "$(ratio_to_torch "$1" "$2")" at_least "$bound"
  done
  if [ -f "$out/times.txt" ]; then
    traced=$(sed -n 's/^GPU idle: *\([0-9.]*\) %.*/\1/p' "$out/times.txt")
    target "GPU idle inside a step, %, traced by CUPTI, which delays kernels" "$traced" at_most
    # The idle time of the same kernels without tracing, from the ratio of the speeds.
    step=resnet_v1_50.bf16.256
    target "GPU idle inside a step, %" "$(echo "$traced $(ratio "$out/ours.$step" "$out/idle.$step")" |
      awk 'NF == 2 { idle = 100 - (100 - $1) * $2; print (idle > 0 ? idle : 0) }')" at_most 2
  fi
  number=$(ratio "$out/jpegs_decoded" "$out/jpegs_tensors")
  [ -z "$number" ] || target "resnet_v1_50, bf16, from JPEGs / from tensors" "$number" at_least 0.97
  grep -ls '"cuda_graph":false' "$out"/*.json | while read -r file; do
    target "$(basename "$file" .json): steps as CUDA graphs" 0 at_least 1
  done
}
