package verbs

import (
	"fmt"
	"strconv"
	"strings"
)

// hcaFilter is a parsed Options.HCA.
type hcaFilter struct {
	exclude, exact bool
	items          []hcaItem
}

type hcaItem struct {
	name string
	port int // 0: any
}

func parseHCA(s string) (hcaFilter, error) {
	var f hcaFilter
	rest := strings.TrimSpace(s)
	rest, f.exclude = strings.CutPrefix(rest, "^")
	rest, f.exact = strings.CutPrefix(rest, "=")
	if rest == "" {
		if s != "" && (f.exclude || f.exact) {
			return f, fmt.Errorf("verbs: HCA filter %q names no device", s)
		}
		return f, nil
	}
	for word := range strings.SplitSeq(rest, ",") {
		name, port, hasPort := strings.Cut(strings.TrimSpace(word), ":")
		it := hcaItem{name: name}
		if hasPort {
			n, err := strconv.Atoi(port)
			if err != nil || n < 1 || n > 255 {
				return f, fmt.Errorf("verbs: HCA filter %q: bad port %q", s, port)
			}
			it.port = n
		}
		if name == "" {
			return f, fmt.Errorf("verbs: HCA filter %q: empty device name", s)
		}
		f.items = append(f.items, it)
	}
	return f, nil
}

func (f hcaFilter) match(device string, port int) bool {
	if len(f.items) == 0 {
		return true
	}
	for _, it := range f.items {
		named := device == it.name || !f.exact && strings.HasPrefix(device, it.name)
		if named && (it.port == 0 || it.port == port) {
			return !f.exclude
		}
	}
	return f.exclude
}
