package main

import (
	"math"

	"github.com/gccl/gccl/examples/allreduce/internal/fashion"
)

// A softmax classifier: the score of class c is w[Pixels][c] (its bias) plus the sum of w[p][c]
// times the brightness of pixel p, and the loss is the mean of −log of the probability, exp(score)
// normalised, that an image's own class gets.
const (
	weights = (fashion.Pixels + 1) * fashion.Classes
	// partLen is the length of what a rank contributes: its part of the gradient and, last, of the loss.
	partLen = weights + 1
)

// part adds up in float64 what a share of the images contributes to the gradient, and to the loss, of
// a mean over total images.
func part(w []float32, share fashion.Set, total int) []float64 {
	g := make([]float64, partLen)
	for i := range share.Len() {
		x := share.Images[i*fashion.Pixels : (i+1)*fashion.Pixels]
		p := probabilities(w, x)
		label := share.Labels[i]
		g[weights] -= math.Log(p[label]) / float64(total)
		p[label]--
		for c := range p {
			p[c] /= float64(total)
		}
		for j, v := range x {
			if v == 0 {
				continue
			}
			to := g[j*fashion.Classes : (j+1)*fashion.Classes]
			for c := range to {
				to[c] += p[c] * float64(v) / 255
			}
		}
		for c := range p {
			g[fashion.Pixels*fashion.Classes+c] += p[c]
		}
	}
	return g
}

// probabilities is the classifier's opinion of one image.
func probabilities(w []float32, x []byte) (p [fashion.Classes]float64) {
	for c := range p {
		p[c] = float64(w[fashion.Pixels*fashion.Classes+c])
	}
	for j, v := range x {
		if v == 0 {
			continue
		}
		from := w[j*fashion.Classes : (j+1)*fashion.Classes]
		for c := range p {
			p[c] += float64(from[c]) * float64(v) / 255
		}
	}
	top, sum := p[0], 0.0
	for _, v := range p {
		top = max(top, v)
	}
	for c := range p {
		p[c] = math.Exp(p[c] - top)
		sum += p[c]
	}
	for c := range p {
		p[c] /= sum
	}
	return p
}

// accuracy is the fraction of images whose likeliest class is their own.
func accuracy(w []float32, set fashion.Set) float64 {
	right := 0
	for i := range set.Len() {
		p := probabilities(w, set.Images[i*fashion.Pixels:(i+1)*fashion.Pixels])
		best := 0
		for c := range p {
			if p[c] > p[best] {
				best = c
			}
		}
		if best == int(set.Labels[i]) {
			right++
		}
	}
	return float64(right) / float64(set.Len())
}
