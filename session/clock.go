package session

import "time"

// Clock is the default clock of the engines of sessions, runs and attempts. Only simulations of
// faults replace it, in a binary of their own, before they open the first engine.
var Clock = time.Now
