package tensor

// Part is the range [lo, hi) of part i when count elements are divided into consecutive parts whose lengths differ by
// at most one, the longer ones first. parts is positive, count is not negative; with count < parts the last parts are
// empty. No computation overflows.
func Part(count, parts, i int) (lo, hi int) {
	base, rest := count/parts, count%parts
	lo = base*i + min(i, rest)
	hi = lo + base
	if i < rest {
		hi++
	}
	return lo, hi
}
