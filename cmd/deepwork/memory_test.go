package main

import "testing"

// The larger the heap, the smaller the part of it that may be garbage.
func TestGarbageHasARoom(t *testing.T) {
	for _, c := range []struct {
		room gcRoom
		live uint64 // MB
		want int    // percent
	}{
		{gcStdio, 0, 200}, {gcStdio, 10, 200}, {gcStdio, 64, 150}, {gcStdio, 500, 100},
		{gcNetwork, 0, 400}, {gcNetwork, 16, 400}, {gcNetwork, 20, 320}, {gcNetwork, 32, 200}, {gcNetwork, 64, 100}, {gcNetwork, 500, 100},
	} {
		if got := c.room.percentOf(c.live << 20); got != c.want {
			t.Errorf("with %d MB alive: %d%%, not %d%%", c.live, got, c.want)
		}
	}
}
