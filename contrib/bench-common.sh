# Functions that benchmarks on loop devices share; to be sourced with $dir and $raw set.

loops=()

# attach IMAGE...
attach() {
    loops=()
    for image in "$@"; do loops+=("$(losetup -f --show "$image")"); done
}
detach() {
    [ ${#loops[@]} -eq 0 ] || losetup -d "${loops[@]}"
    loops=()
}

cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# Time that all processors were busy since the machine started, in milliseconds.
busy() { awk -v hz="$(getconf CLK_TCK)" '/^cpu / { print int(($2 + $3 + $4 + $7 + $8) * 1000 / hz) }' /proc/stat; }

# timed CASE WHO COMMAND...: a line of the raw output, with milliseconds, and those that all processors together were busy.
timed() {
    local name=$1 who=$2 start cpu
    shift 2
    cpu=$(busy)
    start=$(date +%s%N)
    "$@" >/dev/null 2>"$dir/said.txt" || { cat "$dir/said.txt" >&2; return 1; }
    echo "$name $who $((($(date +%s%N) - start) / 1000000)) $(($(busy) - cpu))" | tee -a "$raw" >&2
}

load() { echo "load: $(cut -d' ' -f1-3 /proc/loadavg)" >&2; }

# Medians, least and greatest, and medians of the time of the processors.
summary() {
    sort -k1,2 -k3n "$raw" | awk '
        { key = $1 " " $2; if (key != last) { show(); last = key; n = 0 } value[++n] = $3; cpu[n] = $4 }
        function show(  i, j, now) {
            if (!n) return
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && cpu[j - 1] > cpu[j]; j--) { now = cpu[j]; cpu[j] = cpu[j - 1]; cpu[j - 1] = now }
            print last, value[int((n + 1) / 2)], "(" value[1] " to " value[n] ")", "busy", cpu[int((n + 1) / 2)]
        }
        END { show() }' | column -t
}
