// Package durable writes state to disk so that it survives a crash of the program and a
// loss of power: files that are replaced whole or not at all, folders whose names are
// synced, file locks, seals (checksums), and the differences between Linux, other Unixes
// and Windows. It does not know what is in the files.
//
// It is code of our own because google/renameio leaves out Windows and the sync of the
// folder, natefinch/atomic leaves out every sync, and neither has an exclusive rename or
// a way to make a disk fail in tests.
//
// The order is always the same: the content is synced, then the file gets its name, then
// the folder is synced. Only when all three have succeeded may a caller report that the
// state is kept.
package durable
