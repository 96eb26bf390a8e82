// One connection: a buffer that is read frame by frame, and a call that waits for its answer.

package main

import (
	"fmt"
	"net"
	"time"
)

type link struct {
	net.Conn
	buf      []byte
	from, to int // the unread part of buf
}

func dial(addr string) (*link, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &link{Conn: c, buf: make([]byte, 16<<10)}, nil
}

// receive waits for at least one whole frame and visits all that have come.
func (l *link) receive(visit func(reply) error) error {
	for seen := false; ; {
		for l.to-l.from >= 4 {
			n := int(be.Uint32(l.buf[l.from:]))
			if n < 4 || n > 64<<20 {
				return fmt.Errorf("frame of %d bytes", n)
			}
			if l.to-l.from < 4+n {
				if 4+n > len(l.buf)-l.from { // make room for the whole of it
					next := l.buf
					if 4+n > len(next) {
						next = make([]byte, 2*(4+n))
					}
					l.to = copy(next, l.buf[l.from:l.to])
					l.buf, l.from = next, 0
				}
				break
			}
			r, err := parseReply(l.buf[l.from+4 : l.from+4+n])
			if err != nil {
				return err
			}
			l.from += 4 + n
			if r.flag&1 == 0 {
				continue // a request of the server's own, such as NOTIFY_CONSUMER_IDS_CHANGED
			}
			seen = true
			if err := visit(r); err != nil {
				return err
			}
		}
		if l.from == l.to {
			l.from, l.to = 0, 0
		}
		if seen {
			return nil
		}
		if l.to == len(l.buf) {
			l.to, l.from = copy(l.buf, l.buf[l.from:l.to]), 0
		}
		n, err := l.Read(l.buf[l.to:])
		if err != nil {
			return err
		}
		l.to += n
	}
}

// call sends one request and waits for its answer, which must be the next one.
func (l *link) call(bin bool, code int, ext []kv, body []byte) (r reply, err error) {
	l.SetDeadline(time.Now().Add(10 * time.Second))
	defer l.SetDeadline(time.Time{})
	if _, err = l.Write(frame(bin, code, opaqueBase, 0, ext, body)); err != nil {
		return r, err
	}
	err = l.receive(func(got reply) error { r = got; return nil })
	return r, err
}
