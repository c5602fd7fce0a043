package attempt

import (
	"log/slog"
	"path/filepath"

	"deepwork/actor/presence"
	"deepwork/session"
)

// newMember returns a member of the project whose .deepwork folder is home.
func newMember(home string, log *slog.Logger) *presence.Member {
	return session.NewMember(filepath.Join(home, "tmp"), log)
}
