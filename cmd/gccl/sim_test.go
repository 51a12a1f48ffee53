package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/simulate"
)

// TestTwoLevelHalving: it is a right AllReduce, and one host stands for all.
func TestTwoLevelHalving(t *testing.T) {
	in, p := twoLevelHalving(), simulate.Default()
	hosts := make([]int, 64)
	for r := range hosts {
		hosts[r] = r / 4
	}
	shape := schedule.Shape{Hosts: hosts}
	require.NoError(t, prove(new(bytes.Buffer), &in, len(hosts), shape, 1))
	p.Hosts = hosts
	played, err := simulate.Played(in.Make, len(hosts), shape, p)
	require.NoError(t, err)
	assert.Equal(t, 4, played)
}

// TestExtrapolatedShows: a time that was not played to its end has a mark.
func TestExtrapolatedShows(t *testing.T) {
	var out bytes.Buffer
	o := simOptions{ranks: 2048, perHost: 1}
	o.table(&out, schedule.AllReduce, []int{1 << 20, 1 << 30}, []curve{{"some", []simulate.Point{
		{Bytes: 1 << 20, Time: time.Millisecond}, {Bytes: 1 << 30, Time: time.Second, Extrapolated: true},
	}}})
	assert.Contains(t, out.String(), "~1000000*")
	assert.NotContains(t, out.String(), "~1000.0*")
	assert.Contains(t, out.String(), "straight line")
}

// TestOmitted: algorithms that are left out for one reason share a line.
func TestOmitted(t *testing.T) {
	var o omitted
	assert.Empty(t, o.lines())
	o.add("a", "too long")
	o.add("b", "too many ranks")
	o.add("c", "too long")
	assert.Equal(t, []string{"a, c: too long", "b: too many ranks"}, o.lines())
}
