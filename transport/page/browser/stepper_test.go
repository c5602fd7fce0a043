package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// stepperWord makes this test binary an agent of a run: BINARY stepper DIR.
const stepperWord = "stepper"

// stepAs is such an agent. It says what it works on, and does what the file named for its step in a folder says once that is
// there: "finish" hands in STEP.md, "limit SECONDS" and "leave" end without. It removes the file.
func stepAs(dir string) error {
	name := os.Getenv(config.StepEnv)
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	fmt.Println("I work on " + name)
	order := filepath.Join(dir, name)
	said, err := os.ReadFile(order)
	for ; os.IsNotExist(err); said, err = os.ReadFile(order) {
		time.Sleep(20 * time.Millisecond) // the test makes it
	}
	if err == nil {
		err = os.Remove(order)
	}
	if err != nil {
		return err
	}
	what, more, _ := strings.Cut(string(said), " ")
	switch what {
	case "limit":
		fmt.Fprintf(os.Stderr, "rate limit reached, try again in %s seconds\n", more)
		os.Exit(1)
	case "leave":
		fmt.Println("That is all about " + name)
		return nil
	}
	return finishStep(name)
}

// finishStep hands in STEP.md with a line more than before.
func finishStep(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	before, err := os.ReadFile(name + ".md")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.WriteFile(name+".md", append(before, "A line of "+name+"\n"...), 0o644); err != nil {
		return err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "stepper", Version: "1"}, nil)
	cs, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: os.Getenv(config.MCPURLEnv), HTTPClient: &http.Client{Transport: withToken{}}}, nil)
	if err != nil {
		return err
	}
	defer cs.Close()
	r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "finished_step", Arguments: map[string]any{"outputs": map[string]any{"text": name + ".md"}}})
	if err == nil {
		fmt.Println(r.Content[0].(*mcp.TextContent).Text)
	}
	return err
}

// withToken adds the token of an agent to what it sends.
type withToken struct{}

func (withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+os.Getenv(runner.TokenEnv))
	return http.DefaultTransport.RoundTrip(r)
}
