// Package durable is how state gets to disk so that it survives a crash of the
// program and a loss of power: files that are replaced whole or not at all,
// folders whose names are synced, and the system's differences between Linux,
// other Unixes and Windows. It knows nothing of what is in the files.
//
// It stands below actor, as package process does, because every room of the
// house keeps files, and an actor that restarts does so from what is on disk.
//
// It is code of our own because google/renameio leaves out Windows and the sync
// of the folder, natefinch/atomic leaves out every sync, and neither has an
// exclusive rename, an exchange of names, or a way to make a disk fail in tests.
//
// The order is always the same: the content is synced, then the file gets its
// name, then the folder is synced. Only who has seen all three succeed may tell
// somebody that the state is kept.
package durable
