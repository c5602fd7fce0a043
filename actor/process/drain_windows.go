package process

import "os"

// look takes every pipe for one that is empty, and that somebody may still write
// to: the system tells what is in it only once nobody waits in a read of it.
func look(*os.File) (unread, open bool) { return false, true }
