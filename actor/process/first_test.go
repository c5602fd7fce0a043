package process_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"deepwork/actor/process"
)

// asFirst is what the first process of a container does: its child leaves orphans, says so, and ends with its stdin.
func asFirst() int {
	if code, first := process.RunAsFirst(); first {
		return code
	}

	for range 5 {
		exec.Command("sh", "-c", "(sleep 0.01; true) & exit").Run()
	}
	fmt.Println("orphans")
	io.Copy(io.Discard, os.Stdin)
	return 7
}
