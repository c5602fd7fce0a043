package remote

import "sync"

// A sink holds the progress of one call and hands it on, one after the other, beside
// the call: whoever brings it does not wait for whoever gets it.
type sink struct {
	hand func(Progress)

	mu      sync.Mutex
	quiet   sync.Cond // nobody is handing on
	held    []Progress
	handing bool // a goroutine is; end waits for it
	over    bool
	broke   any // the panic of hand, for end
}

func newSink(hand func(Progress)) *sink {
	s := &sink{hand: hand}
	s.quiet.L = &s.mu
	return s
}

// put takes progress; where it comes faster than it is taken, the newest is kept.
func (s *sink) put(p Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.held = append(s.held, p); len(s.held) > maxProgress {
		s.held = s.held[1:]
	}
	if !s.handing {
		s.handing = true
		go s.pump()
	}
}

// pump hands on what there is.
func (s *sink) pump() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.held) > 0 {
		all := s.held
		s.held = nil
		s.mu.Unlock()
		broke := s.handAll(all)
		s.mu.Lock()
		if broke != nil {
			s.broke, s.over, s.held = broke, true, nil
		}
	}
	s.handing = false
	s.quiet.Broadcast()
}

// handAll hands on, and returns the panic of who is handed to.
func (s *sink) handAll(all []Progress) (broke any) {
	defer func() { broke = recover() }()
	for _, p := range all {
		s.hand(p)
	}
	return nil
}

// end takes no more, and returns when all that there was has been handed on; a panic of
// who it was handed to comes up here.
func (s *sink) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for s.handing {
		s.quiet.Wait()
	}
	if s.broke != nil {
		panic(s.broke) // where the call is, and what guards it
	}
}
