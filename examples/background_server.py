"""A server in the background: start it, wait until it answers, use it, read what it printed, stop it."""

from handrail import Session, builtin_tools, open_sandbox, run_sync

PAGE = "<h1>Hello from the jail</h1>\n"
SERVE = "python3 -u -m http.server 8080 --bind 127.0.0.1"
UNTIL_IT_LISTENS = "until (: < /dev/tcp/127.0.0.1/8080) 2>/dev/null; do sleep 0.1; done"
FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8080').read().decode(), end='')\""


async def main() -> None:
    async with open_sandbox() as sandbox, Session(builtin_tools(), sandbox=sandbox) as session:
        await session.call("write", {"path": "index.html", "content": PAGE})
        started = await session.call("bash", {"command": SERVE, "background": True})
        job = started.value["job"]  # the call has been answered, and the server runs on
        print("started:", job)
        await session.call("bash", {"command": UNTIL_IT_LISTENS, "timeout": 60})

        print("page:", (await session.call("bash", {"command": FETCH})).value["stdout"].strip())
        log = (await session.call("process", {"action": "tail", "job": job})).value["text"]
        print("log:", log.splitlines()[-1].partition("] ")[2])

        stopped = await session.call("process", {"action": "kill", "job": job})
        print("stopped:", stopped.value["killed"])
        again = await session.call("bash", {"command": FETCH})
        print("page:", again.value["stderr"].splitlines()[-1])


run_sync(main)
# > started: job-1
# > page: <h1>Hello from the jail</h1>
# > log: "GET / HTTP/1.1" 200 -
# > stopped: True
# > page: urllib.error.URLError: <urlopen error [Errno 111] Connection refused>
