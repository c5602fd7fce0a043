// Package presence tells which of the servers that share a folder live. Each has
// one lock file there, server_<id>.lock, and keeps it locked until it ends,
// however it ends: a lock goes with its process. Whoever wants to know whether a
// server lives tries the lock.
//
// A lock file is never replaced but by its own server, for a lock on a file that
// is replaced guards nothing. Who removes it makes a server look dead that lives;
// so a server that is about to own something sees first that its file Stands, and
// enters again where it does not.
//
// What servers decide by who lives, such as whose the work of a dead one is, they
// decide one after the other, under a Claim. It is also what keeps one from
// sweeping the lock file that another has made and not yet locked. A folder may
// do without: its lock files are then removed by Sweep alone.
//
// It is code of our own, around gofrs/flock, because a lock alone does not notice
// that its file has gone. It knows nothing of what the servers share.
package presence
