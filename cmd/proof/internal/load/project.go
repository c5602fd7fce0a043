package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// outputFiles is how many files there are that steps can name as outputs.
const outputFiles = 64

// outputPath is one of them, relative to the project.
func outputPath(n int) string { return "load_outputs/" + strconv.Itoa(n) + ".md" }

const (
	// idleTimeout is after what time without a call the servers close a connection.
	idleTimeout = 3 * time.Second
	// forgottenAfter is when a server has surely let go of what a client that
	// vanished had: after that, and some time for the work.
	forgottenAfter = 2 * idleTimeout
)

// configText is the configuration of a project of ours: room for many connections,
// and not much patience with those whose client has vanished.
var configText = fmt.Sprintf(`version: "1.0"
toolsets: [workflows]
http:
  idle_timeout: %v
  max_connections: 40000
  max_requests: 20000
`, idleTimeout)

// layOut writes what a load needs besides its jobs. own tells that the project
// is ours, and is to be configured.
func layOut(root string, own bool) error {
	if err := os.MkdirAll(filepath.Join(root, "load_outputs"), 0o755); err != nil {
		return fmt.Errorf("laying out the project: %w", err)
	}
	for n := range outputFiles {
		if err := os.WriteFile(filepath.Join(root, outputPath(n)), fmt.Appendf(nil, "Output %d of a load.\n", n), 0o644); err != nil {
			return fmt.Errorf("laying out the project: %w", err)
		}
	}
	if !own {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(root, ".deepwork"), 0o755); err != nil {
		return fmt.Errorf("laying out the project: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, ".deepwork", "config.yml"), []byte(configText), 0o644); err != nil {
		return fmt.Errorf("laying out the project: %w", err)
	}
	return nil
}

// cleanUp removes from somebody else's project what was laid out there; the
// session files stay, as they do.
func cleanUp(root string) error {
	for job := range jobCount {
		if err := os.RemoveAll(jobDir(root, job)); err != nil {
			return fmt.Errorf("removing the jobs of the load: %w", err)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "load_outputs")); err != nil {
		return fmt.Errorf("removing the outputs of the load: %w", err)
	}
	return nil
}

// mustNotBe refuses a project that has what a load would write over.
func mustNotBe(root string) error {
	paths := []string{filepath.Join(root, "load_outputs")}
	for job := range jobCount {
		paths = append(paths, jobDir(root, job))
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s is there already, and a load would write over it: remove it first, or give another project", path)
		}
	}
	return nil
}
