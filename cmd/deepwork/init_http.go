package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"deepwork/catalog/trust"
	"deepwork/session/git"
	"deepwork/session/state"
	"deepwork/transport/web"
)

// tokenVariable is the environment variable that an entry names instead of a token.
const tokenVariable = "DEEPWORK_TOKEN"

// httpServer returns the entry of a server that runs at a URL. A server on loopback that knows the
// owners of connections (peers) needs no token. Where it does not, the token is the user's own; it is
// not written into a file that git may keep.
func httpServer(address string, peers bool) serverOf {
	return func(root string, c *client) (entry, shown mcpEntry, todo string, err error) {
		u, err := url.Parse(address)
		if err != nil {
			return entry, shown, "", err
		}
		plain, named := c.http(u, "", false), c.http(u, "", true)
		if !web.IsLoopback(u.Hostname()) {
			return named, named, fmt.Sprintf("set %s, in the environment of the client, to the token that the person who runs the server gave you", tokenVariable), nil
		}
		if peers {
			return plain, plain, "", nil
		}
		folder, err := state.Find(root)
		if err != nil {
			return entry, shown, "", err
		}
		token, err := folder.Token(true)
		if err != nil {
			return entry, shown, "", err
		}
		set := fmt.Sprintf("start the client with %s set, as by\n\n  export %[1]s=\"$(deepwork token show --path %s)\"", tokenVariable, trust.Quote(root))
		if c.variable == "" {
			return named, named, set, nil
		}
		if why := mayBeKept(root, c.path(root)); why != "" {
			return named, named, fmt.Sprintf("%s, so your token is not in it: %s\n\nor have git ignore the file, remove the entry, and run init again", why, set), nil
		}
		entry = c.http(u, token, false)
		entry.secret = true
		return entry, named, "", nil
	}
}

// mayBeKept returns why git may keep a file in the folder dir, or "" if git ignores it or there is no
// repository.
func mayBeKept(dir, file string) string {
	if info, err := os.Lstat(file); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return file + " is a symlink"
	}
	rel, err := filepath.Rel(dir, file)
	if err == nil {
		_, err = git.Output(context.Background(), git.Command{Dir: dir, Args: []string{"check-ignore", "-q", filepath.ToSlash(rel)}})
	}
	switch {
	case err == nil || git.Said(err, "not a git repository"):
		return ""
	case git.ExitCode(err) == 1:
		return "git keeps " + file + ", or would"
	}
	return fmt.Sprintf("it is not known whether git keeps %s (%v)", file, err)
}
