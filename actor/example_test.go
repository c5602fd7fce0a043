package actor_test

import (
	"context"
	"fmt"

	"deepwork/actor"
)

// A counter's only message is one struct; several would share a sealed interface.
type add struct {
	n     int
	reply actor.Reply[int]
}

type counter struct{ sum int } // no lock: one goroutine owns it

func (c *counter) Receive(_ context.Context, m add) error {
	c.sum += m.n
	m.reply.Send(c.sum)
	return nil
}

func Example() {
	ctx := context.Background()
	system := actor.NewSystem(nil)
	defer system.Stop(ctx)
	ref := actor.Spawn(system, actor.Options{Name: "counter"}, func() (actor.Behavior[add], error) {
		return &counter{}, nil
	})
	_ = ref.Tell(ctx, add{n: 40})
	sum, err := actor.Ask(ctx, ref, func(r actor.Reply[int]) add { return add{2, r} })
	fmt.Println(sum, err)
	// Output: 42 <nil>
}
