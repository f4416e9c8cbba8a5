"""`standpipe sql`: a prompt with history and completion, and the execution of `-e` and `-f`.

A statement runs when its `;` is entered, and its lines may end with a backslash, as in ksqlDB's
CLI. Ctrl-C cancels it, Ctrl-D exits. Push queries and PRINT show rows as they arrive, until Ctrl-C.
SET applies to the session. RUN SCRIPT 'file' runs the statements of a file in it. A statement that
fails ends `-e` and `-f` with exit status 1; at the prompt it only prints the error.

Not here: output (`sql_output.py`); splitting the text before it is parsed (`sql_text.py`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import cast
from urllib.parse import quote

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console

from standpipe.client.core.attempts import AnswerLost
from standpipe.client.core.session import (
    ClientSession,
    has_insert,
    token_in_item,
    without_token,
)
from standpipe.config.lags import TIME_BOUNDS
from standpipe.errors import SetupError, StandpipeError
from standpipe.local.cli import sql_text
from standpipe.local.cli.sql_files import read_sql
from standpipe.local.cli.sql_output import LiveOutput, print_entity, print_error, print_pull
from standpipe.local.client.rest_client import Entity, NodesClient, PullAnswer
from standpipe.session_token import LEVEL_PROPERTY, PROPERTIES, SESSION, TOKEN_PROPERTY
from standpipe.sql.lookup.push import needs_spark
from standpipe.sql.syntax import variables
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.ast_statements import Define
from standpipe.sql.types.names import name_literal

NAMES_FRESH_S = 10.0
#: scripts that run one another
SCRIPTS_MAX = 8
#: characters of a statement that an error names
SHOWN_MAX = 100

WELCOME = """\
Standpipe SQL. A statement ends with ; and may span lines. Ctrl-C cancels, Ctrl-D exits.
Try: SHOW TABLES;"""


class SqlSession:
    """Runs statements and prints their answers. SET, UNSET, DEFINE and UNDEFINE apply to later
    statements: each is a request of its own, with which a node forgets them.

    After SET 'standpipe.read.consistency'='session', no pull query shows older rows than an earlier
    query did, or lacks a row that INSERT … VALUES wrote, and a push query begins behind what was
    seen. Other statements know no levels, and are sent without it.
    """

    def __init__(self, client: NodesClient, console: Console, *, as_json: bool) -> None:
        self._client = client
        self._console = console
        self._as_json = as_json
        self._properties: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        #: while the level is `session`
        self._session: ClientSession | None = None

    def run(self, text: str) -> None:
        """Run statements in order; the last one may lack its `;`. Raises the first failure; an
        AnswerLost says which of several statements it was."""
        self._run(text, scripts=())

    def _run(self, text: str, scripts: tuple[str, ...]) -> None:
        """`scripts`: those that run one another, from the outermost to the one that this is in."""
        statements, rest = sql_text.split_statements(text)
        statements += [f"{rest.strip()};"] if rest else []
        for number, statement in enumerate(statements, start=1):
            path = sql_text.script(statement)
            if path is not None:
                self._run(_script(path, scripts), (*scripts, path))
                continue
            try:
                self._run_one(statement)
            except AnswerLost as error:
                if len(statements) == 1 and not scripts:
                    raise
                place = f"statement {number} of {len(statements)}"
                place += f" in {scripts[-1]}" if scripts else ""
                raise AnswerLost(f"{error.message}\n  {place}: {_clipped(statement)}") from error

    def _run_one(self, text: str) -> None:
        """Send a statement to its endpoint and print the answer."""
        if sql_text.is_live(text):
            self._follow(text)
        elif sql_text.is_query(text):
            answer = self._pull(text)
            print_pull(self._console, answer, as_json=self._as_json)
        else:
            for entity in self._execute(text):
                print_entity(self._console, entity, as_json=self._as_json)
            self._remember(sql_text.setting(text))
            if sql_text.is_definition(text):
                self._define(text)

    def _execute(self, text: str) -> list[Entity]:
        session, properties = self._session, self._without(PROPERTIES)
        if session is None or not has_insert(text):
            return self._client.execute(text, properties, self._sent_variables)
        properties = {**self._properties, TOKEN_PROPERTY: session.token}
        answered = self._client.execute(text, properties, self._sent_variables)
        entities, token = without_token(answered)
        if token is not None:
            session.saw(token)
        return entities

    def _without(self, names: Collection[str]) -> dict[str, str]:
        """The properties without those that are for pull queries."""
        return {name: text for name, text in self._properties.items() if name not in names}

    def _pull(self, text: str) -> PullAnswer:
        session = self._session
        if session is None:
            return self._client.pull(text, self._properties, self._sent_variables)
        properties = {**self._properties, TOKEN_PROPERTY: session.token}
        answer = self._client.pull(text, properties, self._sent_variables)
        if answer.token is not None:
            session.saw(answer.token)
        return answer

    def _follow(self, text: str) -> None:
        """Print lines until the query ends, or Ctrl-C ends it by closing the connection."""
        output = LiveOutput(self._console, text, as_json=self._as_json)
        session = self._session if self._session and self._knows_sessions(text) else None
        properties = self._without((*PROPERTIES, *TIME_BOUNDS))
        if session is not None:
            properties |= {LEVEL_PROPERTY: SESSION, TOKEN_PROPERTY: session.token}
        with closing(self._client.follow(text, properties, self._sent_variables)) as lines:
            for line in lines:
                token = token_in_item(line) if session is not None else None
                if session is not None and token is not None:
                    session.saw(token)
                else:
                    output.line(line)

    def _knows_sessions(self, text: str) -> bool:
        """Whether it is a push query that goes on where another one ended: PRINT does not, nor does
        what Spark runs for this client alone."""
        try:
            statements = list(variables.parse(text, self._variables, is_on=self._substitutes))
        except StandpipeError:
            return False  # for a node to say
        return all(isinstance(each, Query) and not needs_spark(each) for each in statements)

    @property
    def _substitutes(self) -> bool:
        return variables.substitutes(self._properties)

    @property
    def _sent_variables(self) -> dict[str, str]:
        """Those that a node is to put into a statement: it does so whenever it gets some."""
        return self._variables if self._substitutes else {}

    def _define(self, text: str) -> None:
        """Apply a DEFINE or UNDEFINE that a node has accepted."""
        for statement in variables.parse(text, self._variables, is_on=self._substitutes):
            if isinstance(statement, Define):
                variables.define(self._variables, statement)

    def _remember(self, setting: tuple[str, str | None] | None) -> None:
        if setting is None:
            return
        name, value = setting
        self._client.get(f"/is_valid_property/{quote(name)}")  # otherwise every request would fail
        if value is None:
            self._properties.pop(name, None)
        else:
            self._properties[name] = value
        if self._properties.get(LEVEL_PROPERTY) != SESSION:
            self._session = None
        elif self._session is None:
            self._session = ClientSession(self._properties.get(TOKEN_PROPERTY, ""))


def _clipped(statement: str) -> str:
    """The statement on a line, without its comments."""
    words = " ".join(sql_text.without_comments(statement).split())
    return words if len(words) <= SHOWN_MAX else f"{words[: SHOWN_MAX - 1]}…"


def _script(path: str, scripts: tuple[str, ...]) -> str:
    """The text of a script. Raises SetupError."""
    if len(scripts) >= SCRIPTS_MAX:
        raise SetupError(
            f"{' runs '.join((*scripts, path))}: more than {SCRIPTS_MAX} scripts run one another",
            next_step="name the files one after another instead",
        )
    return read_sql(path, command="RUN SCRIPT")


def run_text(client: NodesClient, console: Console, text: str, *, as_json: bool) -> None:
    """Run statements in a new session."""
    SqlSession(client, console, as_json=as_json).run(text)


class CatalogNames:
    """Names of streams, tables and columns as a statement spells them, at most 10 s old. None if no
    node answers; of a source that cannot be described, its columns are missing."""

    def __init__(self, client: NodesClient) -> None:
        self._client = client
        self._asked_at = -NAMES_FRESH_S
        self._names: list[str] = []

    def __call__(self) -> list[str]:
        if time.monotonic() - self._asked_at > NAMES_FRESH_S:
            self._asked_at = time.monotonic()
            try:
                self._names = self._ask()
            except StandpipeError:
                self._names = []
        return self._names

    def _ask(self) -> list[str]:
        names: list[str] = []
        for entity in self._client.execute("SHOW STREAMS; SHOW TABLES;"):
            listed: list[Entity] = [*entity.get("streams", ()), *entity.get("tables", ())]
            names += [name_literal(source["name"]) for source in listed]
        columns: list[str] = []
        for name in names:
            try:
                columns += self._columns_of(name)
            except SetupError:  # no node answers, so none would for the next name
                break
            except StandpipeError:  # it has been dropped meanwhile, say
                continue
        return [*names, *dict.fromkeys(columns)]

    def _columns_of(self, name: str) -> list[str]:
        found: list[str] = []
        for entity in self._client.execute(f"DESCRIBE {name};"):
            description = cast(Entity, entity.get("sourceDescription") or {})
            fields: list[Entity] = description.get("fields") or []
            found += [name_literal(field["name"]) for field in fields]
        return found


class SqlCompleter(Completer):
    """Completes the word before the cursor from the catalog and the keywords."""

    def __init__(self, names: CatalogNames) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The completions of the word before the cursor."""
        before = document.text_before_cursor
        word = document.get_word_before_cursor()
        for found in sql_text.completions(before, self._names()):
            yield Completion(found, start_position=-len(word))


def _bindings() -> KeyBindings:
    """Enter runs a complete statement and starts a new line in an incomplete one."""
    bindings = KeyBindings()

    @Condition
    def is_whole() -> bool:
        text = get_app().current_buffer.text
        return not text.strip() or not sql_text.split_statements(text)[1]

    @bindings.add("enter", filter=is_whole)
    def _run(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]
        event.current_buffer.validate_and_handle()

    return bindings


def history_file() -> Path | None:
    """Where the prompt keeps what was entered; None: this user has no home."""
    try:
        return Path.home() / ".local/state/standpipe/history"
    except RuntimeError:
        return None


class PromptHistory(FileHistory):
    """What was entered, in a file for the next prompt, and in memory.

    If the file cannot be read or written, only in memory from then on; `trouble` says why.
    """

    def __init__(self, file: Path | None) -> None:
        self.trouble = ""
        super().__init__(str(file))
        if file is None:
            self.trouble = "there is no home directory"
            return
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.open("ab").close()
        except OSError as error:
            self._give_up(error)

    def load_history_strings(self) -> Iterable[str]:
        """Those of the file, the newest first."""
        if self.trouble:
            return ()
        try:
            return super().load_history_strings()
        except OSError as error:
            self._give_up(error)
            return ()

    def store_string(self, string: str) -> None:
        """Write it to the file."""
        if self.trouble:
            return
        try:
            super().store_string(string)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.trouble = f"{error.filename or self.filename}: {error.strerror or error}"


def prompt(client: NodesClient, console: Console, history: Path | None, *, as_json: bool) -> None:
    """Read and run statements until Ctrl-D. `history`: file of what was entered."""
    kept, told = PromptHistory(history), ""
    session: PromptSession[str] = PromptSession(
        "standpipe> ",
        multiline=True,
        prompt_continuation="        -> ",
        history=kept,
        completer=SqlCompleter(CatalogNames(client)),
        complete_in_thread=True,
        key_bindings=_bindings(),
    )
    sql = SqlSession(client, console, as_json=as_json)
    console.print(WELCOME, style="dim")
    while True:
        if kept.trouble != told:
            told = kept.trouble
            text = f"What you enter is not kept for the next prompt: {told}"
            console.print(text, style="yellow", highlight=False)
        try:
            text = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            sql.run(sql_text.without_continuations(text))
        except KeyboardInterrupt:
            console.print("cancelled", style="yellow")
        except StandpipeError as error:
            print_error(console, error)
