package attempt

import (
	"strings"

	"deepwork/session"
	"deepwork/session/codes"
)

// gitFailed reports a failure of git or of the disk: not a fault of the arguments, and usually one
// that can be fixed.
func GitFailed(what string, err error) error {
	return session.NotNow(codes.GitFailed, "%s: %s. Nothing was changed; correct that and call again.", what, strings.TrimSuffix(err.Error(), ".")).Because(err)
}

func AgentRuns(id string) *session.Error {
	return session.NotNow(codes.AttemptRunning, "The agent of attempt %s is waiting or running. Stop it with stop_attempt or wait until it ends, then call again.", id).With("attempt_id", id)
}
