// Package standard holds the jobs that are bundled with the binary, so that a
// project without a single job folder still has workflows that write, repair
// and improve jobs.
//
// The jobs are plain folders under jobs/, in the format of every other job;
// package catalog lays them out on disk so that their job_dir is a real path.
package standard

import (
	"embed"
	"fmt"
	"io/fs"
)

// Hidden files of editors and systems are no part of a job; embed leaves them
// out of a directory by itself.
//
//go:embed jobs
var embedded embed.FS

// FS returns the bundled jobs as a read-only file system whose top-level
// directories are the jobs, each with its job.yml (DESIGN "Jobs"). It does not
// block, may be called from any goroutine and returns the same content always.
func FS() fs.FS {
	jobs, err := fs.Sub(embedded, "jobs")
	if err != nil {
		// fs.Sub fails on an invalid path alone, and this one is a constant.
		panic(fmt.Sprintf("opening the bundled jobs: %v", err))
	}
	return jobs
}
