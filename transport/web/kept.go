package web

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"

	"deepwork/actor/durable"
)

// addedSecret ends the name of the file with the hash of the secret that AddSecret has added.
const addedSecret = ".secret"

// AddSecret makes the server that runs with this Options.LoginFile let in one browser that gives a secret, as with
// Options.Secret. Of several that were added and not given, the last counts.
func AddSecret(loginFile, secret string) error {
	return durable.Disk{}.Put(loginFile+addedSecret, []byte(hashOf(secret)), durable.PutOptions{})
}

// newLogin returns the logins of a server, with the one that an earlier server has kept.
func newLogin(h *Server) *Login {
	l := &Login{server: h, file: h.options.LoginFile, used: map[string]bool{}}
	if h.options.Secret != "" {
		l.secret = hashOf(h.options.Secret)
	}
	if l.file != "" {
		_ = os.Remove(l.file + addedSecret) // for an earlier server
	}
	if l.file != "" && h.knowsUsers() {
		l.person, l.kept = l.read(l.file), true
	}
	return l
}

// added returns the hash of the secret that was added and not given yet, "" if there is none.
func (l *Login) added() string {
	if l.file == "" {
		return ""
	}
	return l.read(l.file + addedSecret)
}

// read returns the hash in a file, "" if it is missing or may be another user's.
func (l *Login) read(file string) string {
	data, info, err := durable.Read(file, 2*sha256.Size)
	if err == nil {
		err = faultOfSecret(info)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.server.Logger.Warn("a login of the pages is not used", "file", file, "error", err)
		}
		return ""
	}
	return string(data)
}

// keep writes the hash of the person's cookie for the next server, or removes that of an earlier one: without a login,
// or where connections do not tell whose they are, so that whoever has got the cookie could use it.
func (l *Login) keep() {
	if l.file == "" {
		return
	}

	var err error
	if l.person != "" && l.server.knowsUsers() {
		err = durable.Disk{}.Put(l.file, []byte(l.person), durable.PutOptions{})
	} else if err = os.Remove(l.file); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		l.server.Logger.Warn("the login of the pages could not be kept for the next server", "error", err)
	}
}
