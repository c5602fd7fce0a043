// Package standard holds the jobs that are bundled with the binary, so that a project without a job
// folder still has workflows that write, repair and improve jobs.
//
// The jobs are plain folders under jobs/, in the format of every other job; package catalog writes
// them to disk so that their job_dir is a real path.
package standard

import (
	"embed"
	"fmt"
	"io/fs"
)

// Hidden files of editors and systems are no part of a job; embed
// omits them automatically.
//
//go:embed jobs
var embedded embed.FS

// FS returns the bundled jobs as a read-only file system whose top-level directories are the jobs, each with
// its job.yml (DESIGN "Jobs"). It does not block, may be called from any goroutine and always returns the
// same content.
func FS() fs.FS {
	jobs, err := fs.Sub(embedded, "jobs")
	if err != nil {
		// fs.Sub fails only on an invalid path, and this one is a constant.
		panic(fmt.Sprintf("opening the bundled jobs: %v", err))
	}
	return jobs
}
