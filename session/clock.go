package session

import "time"

// Clock is the clock of engines of sessions, runs and attempts whose Options name
// none. Simulations of faults set another in a binary of their own, before the
// first engine is opened; nothing in the program does.
var Clock = time.Now
