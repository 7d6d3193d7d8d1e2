# Lines of "case who microseconds" in, sorted by case and who; a table of medians out, with the ratio of the
# peer's median to brindle's (above 1: brindle is faster).
function flush_group(   half, spread) {
    if (count == 0) return
    half = int((count + 1) / 2)
    median[name, who] = values[half]
    if (name ~ /^memory/) {
        printf "%-22s %-14s %9.1f MiB\n", name, who, values[half] / 1024
    } else {
        printf "%-22s %-14s %9.3f s   (%.3f to %.3f, %d runs)\n", name, who, values[half] / 1e6, values[1] / 1e6, values[count] / 1e6, count
        if (who ~ /^brindle/) ours[name] = values[half]; else theirs[name, who] = values[half]
    }
    count = 0
}
function insert(value,   at) {
    for (at = ++count; at > 1 && values[at - 1] > value; at--) values[at] = values[at - 1]
    values[at] = value
}
$1 != name || $2 != who { flush_group(); name = $1; who = $2 }
{ insert($3) }
END {
    flush_group()
    print ""
    for (pair in theirs) {
        split(pair, part, SUBSEP)
        if (part[1] in ours) printf "%-22s %s / brindle = %.2f\n", part[1], part[2], theirs[pair] / ours[part[1]]
    }
}
