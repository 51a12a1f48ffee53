package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
)

// Geometry of a drawing, in pixels.
const (
	svgWidth, svgHeight       = 900, 560
	svgLeft, svgTop           = 70, 40
	plotWidth, plotHeight     = 560, 460
	svgLegend                 = svgLeft + plotWidth + 20
	lineHeight, svgFontHeight = 18, 12
)

// svgColors are told apart by most people (Okabe and Ito 2008); beyond them lines are dashed.
var svgColors = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"}

// drawSVG draws time against size, or what else the points count, both on logarithmic axes, one line a
// curve.
func drawSVG(out io.Writer, title, counted string, curves []curve) error {
	x, y := axis{lo: math.Inf(1)}, axis{lo: math.Inf(1)}
	for _, c := range curves {
		for _, p := range c.points {
			x.see(float64(max(1, p.Bytes)))
			y.see(float64(max(1, p.Time.Nanoseconds())) / 1e3)
		}
	}
	x.widen(2)
	y.widen(10)
	px := func(v float64) float64 { return svgLeft + plotWidth*x.at(v) }
	py := func(v float64) float64 { return svgTop + plotHeight*(1-y.at(v)) }
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n",
		svgWidth, svgHeight, svgWidth, svgHeight, svgFontHeight)
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(w, `<text x="%d" y="%d" font-size="15">%s</text>`+"\n", svgLeft, svgTop-15, html.EscapeString(title))
	for v, n := x.lo, 0; v <= x.hi*1.01; v, n = v*2, n+1 {
		label := ""
		if n%max(1, x.decades(2)/10) == 0 {
			label = sizeText(int(v))
		}
		gridLine(w, px(v), svgTop, px(v), svgTop+plotHeight)
		fmt.Fprintf(w, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", px(v), svgTop+plotHeight+lineHeight, label)
	}
	for v := y.lo; v <= y.hi*1.01; v *= 10 {
		gridLine(w, svgLeft, py(v), svgLeft+plotWidth, py(v))
		fmt.Fprintf(w, `<text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", svgLeft-6, py(v)+4, v)
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", svgLeft+plotWidth/2, svgTop+plotHeight+2*lineHeight, html.EscapeString(counted))
	fmt.Fprintf(w, `<text x="%d" y="%d">µs</text>`+"\n", svgLeft-40, svgTop-5)
	for i, c := range curves {
		stroke := fmt.Sprintf(`stroke="%s" stroke-width="1.8"`, svgColors[i%len(svgColors)])
		if n := i / len(svgColors); n > 0 {
			stroke += fmt.Sprintf(` stroke-dasharray="%d 3"`, 3*n+2)
		}
		fmt.Fprintf(w, `<polyline fill="none" %s points="`, stroke)
		for _, p := range c.points {
			fmt.Fprintf(w, "%.1f,%.1f ", px(float64(max(1, p.Bytes))), py(float64(max(1, p.Time.Nanoseconds()))/1e3))
		}
		ly := svgTop + 10 + i*lineHeight
		fmt.Fprintf(w, "\"/>\n"+`<line x1="%d" y1="%d" x2="%d" y2="%d" %s/>`+"\n", svgLegend, ly, svgLegend+24, ly, stroke)
		fmt.Fprintf(w, `<text x="%d" y="%d">%s</text>`+"\n", svgLegend+30, ly+4, html.EscapeString(c.name))
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

func gridLine(w io.Writer, x1, y1, x2, y2 float64) {
	fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", x1, y1, x2, y2)
}

// axis is a logarithmic axis.
type axis struct{ lo, hi float64 }

func (a *axis) see(v float64) { a.lo, a.hi = min(a.lo, v), max(a.hi, v) }

// widen takes the ends to powers of a base.
func (a *axis) widen(base float64) {
	a.lo = math.Pow(base, math.Floor(math.Log(a.lo)/math.Log(base)+1e-9))
	a.hi = math.Pow(base, math.Ceil(math.Log(a.hi)/math.Log(base)-1e-9))
	if a.hi <= a.lo {
		a.hi = a.lo * base
	}
}

// at is where a value lies, from 0 to 1.
func (a *axis) at(v float64) float64 { return math.Log(v/a.lo) / math.Log(a.hi/a.lo) }

// decades is how many powers of a base the axis spans.
func (a *axis) decades(base float64) int {
	return int(math.Round(math.Log(a.hi/a.lo) / math.Log(base)))
}
