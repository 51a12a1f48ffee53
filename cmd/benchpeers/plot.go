package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// The plot has a panel for every collective out of place: the ratio over the size, both logarithmic, a
// line for every number of ranks and kind of buffers.
const (
	panelW, panelH = 330, 220
	columns        = 3
	left, top      = 44, 34
	minRatio       = 0.25
	maxRatio       = 64.0
	minSize        = 4
	maxSize        = 512 << 20
)

var (
	colours = map[int]string{2: "#1b6ca8", 4: "#c1541c", 8: "#3f8f3f"}
	dashes  = []string{"", "6 3", "2 3"}
)

func plot(cs []comparison) []byte {
	var names []string
	for _, c := range cs {
		if !c.inPlace && !slices.Contains(names, c.coll) {
			names = append(names, c.coll)
		}
	}
	rows := (len(names) + columns - 1) / columns
	var w bytes.Buffer
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		columns*panelW, rows*panelH+40)
	fmt.Fprint(&w, `<rect width="100%" height="100%" fill="white"/>`+"\n")
	legend(&w)
	_, of := groups(cs)
	for i, name := range names {
		x0, y0 := float64(i%columns*panelW), float64(i/columns*panelH+40)
		axes(&w, name, x0, y0)
		for v := range variants {
			for _, n := range sortedRanks(cs) {
				if line := of[group{name, n, v}]; line != nil {
					curve(&w, line, x0, y0)
				}
			}
		}
	}
	fmt.Fprint(&w, "</svg>\n")
	return w.Bytes()
}

func sortedRanks(cs []comparison) (ns []int) {
	for _, c := range cs {
		if !slices.Contains(ns, c.ranks) {
			ns = append(ns, c.ranks)
		}
	}
	slices.Sort(ns)
	return ns
}

func colour(ranks int) string {
	if c, ok := colours[ranks]; ok {
		return c
	}
	return "#7a5aa6"
}

func legend(w *bytes.Buffer) {
	x := 10
	text := func(s, stroke, dash string) {
		fmt.Fprintf(w, `<line x1="%d" y1="14" x2="%d" y2="14" stroke="%s" stroke-width="2" stroke-dasharray="%s"/><text x="%d" y="18">%s</text>`+"\n", x, x+26, stroke, dash, x+31, s)
		x += 45 + 7*len(s)
	}
	for _, n := range []int{2, 4, 8} {
		text(fmt.Sprintf("%d ranks", n), colour(n), "")
	}
	for i, v := range variants {
		text(v.buffers, "#444", dashes[i])
	}
	fmt.Fprintf(w, `<text x="%d" y="18" fill="#444">best peer's time ÷ gccl's; above 1 gccl is faster</text>`+"\n", x)
}

// at places a size and a ratio in a panel.
func at(bytes int, ratio, x0, y0 float64) (x, y float64) {
	fx := math.Log(float64(max(bytes, minSize))/minSize) / math.Log(maxSize/minSize)
	fy := math.Log(min(max(ratio, minRatio), maxRatio)/minRatio) / math.Log(maxRatio/minRatio)
	return x0 + left + fx*(panelW-left-14), y0 + top + (1-fy)*(panelH-top-30)
}

func axes(w *bytes.Buffer, name string, x0, y0 float64) {
	fmt.Fprintf(w, `<text x="%.0f" y="%.0f" font-weight="bold">%s</text>`+"\n", x0+left, y0+top-10, name)
	for r := minRatio; r <= maxRatio; r *= 2 {
		x, y := at(minSize, r, x0, y0)
		stroke := "#ddd"
		if r == 1 {
			stroke = "#000"
		}
		fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, x, y, x0+panelW-14, y, stroke)
		if math.Mod(math.Log2(r), 2) == 0 {
			fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="end">%g</text>`, x-4, y+4, r)
		}
		fmt.Fprintln(w)
	}
	for _, s := range []int{8, 1 << 10, 64 << 10, 4 << 20, 256 << 20} {
		x, y := at(s, minRatio, x0, y0)
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x, y+14, size(s))
	}
}

func curve(w *bytes.Buffer, cs []comparison, x0, y0 float64) {
	stroke, dash := colour(cs[0].ranks), dashes[cs[0].variant]
	fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.6" stroke-dasharray="%s" points="`, stroke, dash)
	for _, c := range cs {
		x, y := at(c.bytes, c.ratio, x0, y0)
		fmt.Fprintf(w, "%.1f,%.1f ", x, y)
	}
	fmt.Fprint(w, `"/>`+"\n")
	for _, c := range cs {
		x, y := at(c.bytes, c.ratio, x0, y0)
		fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="1.9" fill="%s"/>`, x, y, stroke)
	}
	fmt.Fprintln(w)
}
