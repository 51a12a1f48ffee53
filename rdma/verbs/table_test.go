package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	var tab table
	assert.Nil(t, tab.lookup(0))
	var es []*endpoint
	seen := map[uint32]bool{}
	for range 100 {
		e := &endpoint{}
		require.NoError(t, tab.add(e))
		assert.False(t, seen[e.id])
		seen[e.id] = true
		es = append(es, e)
	}
	for _, e := range es {
		assert.Same(t, e, tab.lookup(e.id))
	}
	assert.Len(t, tab.all(), 100)
	old := es[7].id
	tab.remove(es[7])
	assert.Nil(t, tab.lookup(old))
	again := &endpoint{}
	require.NoError(t, tab.add(again))
	assert.NotEqual(t, old, again.id, "an ID is not used again")
	assert.Equal(t, old&0xffff, again.id&0xffff, "its slot is")
	assert.Nil(t, tab.lookup(old))
	assert.Same(t, again, tab.lookup(again.id))
	assert.Len(t, tab.all(), 100)
}

// A slot that has been used more often than an ID can tell has an ID that is not 0.
func TestTableWraps(t *testing.T) {
	var tab table
	e := &endpoint{}
	for range 1<<16 + 1 {
		require.NoError(t, tab.add(e))
		require.NotZero(t, e.id)
		require.Same(t, e, tab.lookup(e.id))
		tab.remove(e)
	}
}
