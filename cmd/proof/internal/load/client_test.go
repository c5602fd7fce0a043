package load

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call over a connection that was idle for too long is excused, and one whose
// connection is gone for no reason is not.
func TestAConnectionThatIsGone(t *testing.T) {
	root := t.TempDir()
	if err := layOut(root, true); err != nil {
		t.Fatal(err)
	}
	url, stop := serve(t, root)
	defer stop()
	for _, wanted := range []bool{true, false} {
		c, err := connect(t.Context(), &server{url: url}, false)
		if err != nil {
			t.Fatal(err)
		}
		defer c.leave()
		list := func() error {
			_, err := c.call(t.Context(), "get_workflows", map[string]any{})
			return err
		}
		began := time.Now()
		if err := list(); err != nil {
			t.Fatal(err)
		}
		if wanted {
			time.Sleep(idleTimeout + idleTimeout/4)
		} else {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Mcp-Session-Id", c.session.ID())
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}
		err = list()
		if !wanted && time.Since(began) > idleTimeout {
			t.Skip("the machine stands still")
		}
		if !errors.Is(err, mcp.ErrSessionMissing) || errors.Is(err, errHeldUp) != wanted {
			t.Errorf("excused %t is wanted, and it failed with %v", wanted, err)
		}
	}
}
