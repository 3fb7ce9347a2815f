"""The operator's acts: each is an event that this console appends, and nothing else."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from textual import work

from core.errors import PilotageError
from core.events import (
    Body,
    InterventionAmended,
    InterventionRecorded,
    InterventionRestored,
    InterventionVoided,
    MarkerPlaced,
    OperatorDecided,
    OperatorInterrupted,
    OperatorMessaged,
    OperatorPaused,
    OperatorRequested,
    OperatorResumed,
)
from core.state_parts import Ask, Intervention
from tui.actions import READY_S
from tui.feed import LiveFeed
from tui.panes.check_detail import can_waive
from tui.screens.dialogs import Confirm, EditInput, Prompt
from tui.screens.intervention import InterventionForm, guesses, stamp_text
from tui.screens.looking import Looking
from tui.status import ask_subject, ask_text
from tui.view import View
from tui.wording import block, clock, one_line


class Operating(Looking):
    """Answering, directing, and putting on record."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._shown_since: dict[str, float] = {}
        self.monotonic = time.monotonic

    async def write(self, *bodies: Body, **where: Any) -> bool:
        """Append to the log. Where that fails: a sentence, and false. Nothing was stored then."""
        if self.pen is None:
            self.say(self.read_only or "This console can only read.", bad=True)
            return False
        try:
            await self.pen.write(*bodies, **where)
        except PilotageError as err:
            self.say(str(err), bad=True)
            return False
        return True

    @property
    def author(self) -> str:
        """Who sits here."""
        return self.pen.author if self.pen is not None else ""

    # --- answering ---------------------------------------------------------------------------

    def note_ask(self, view: View) -> None:
        """Remember since when the pending ask has been on the screen (not behind a dialog)."""
        ask = view.state.pending_ask if view.acting and self.app.screen is self else None
        if ask is None:
            self._shown_since.clear()
        elif ask.body.ask_id not in self._shown_since:
            self._shown_since = {ask.body.ask_id: self.monotonic()}

    async def act_approve(self) -> None:
        """Allow the ask, if it has been on the screen for a second."""
        ask = self._ask()
        shown = self._shown_since.get(ask.body.ask_id)
        if shown is None or self.monotonic() - shown < READY_S:
            self.say(
                "Not approved: this had been on the screen for less than a second. "
                f"It {ask_text(ask)}. Press a again to approve it."
            )
            return
        if await self._decide(ask, "allow"):
            self.confirm(_sentence("Approved", ask))

    @work(group="dialog")
    async def act_deny(self) -> None:
        """Refuse the ask, with a reason."""
        ask = self._ask()
        reason = await self.app.push_screen_wait(
            Prompt(
                "deny",
                f"The agent {ask_text(ask)}.",
                hint="why not? The agent is told. (empty: no reason)",
                empty_ok=True,
            )
        )
        if reason is not None and await self._decide(ask, "deny", reason=reason):
            self.confirm(_sentence("Denied", ask))

    @work(group="dialog")
    async def act_edit(self) -> None:
        """Change the input and allow that; or answer a question in words."""
        ask = self._ask()
        if not ask.body.tool:
            answer = await self.app.push_screen_wait(
                Prompt("answer", block(ask.body.question), hint="your answer")
            )
            if answer is not None and await self._decide(ask, "edit", {"answer": answer}, answer):
                self.confirm("Answered.")
            return
        title = f"edit: {ask_subject(ask)}"
        changed = await self.app.push_screen_wait(EditInput(one_line(title, 70), ask.body.input))
        if changed is not None and await self._decide(ask, "edit", changed):
            self.confirm("Approved as edited.")

    def _ask(self) -> Ask:
        ask = self.view().state.pending_ask
        assert ask is not None, "the registry lets nobody answer nothing"
        return ask

    async def _decide(
        self, ask: Ask, decision: str, input: dict[str, Any] | None = None, reason: str = ""
    ) -> bool:
        current = self.feed.state.asks.get(ask.body.ask_id)
        if current is None or not current.pending:
            self.say("That was answered already, or its agent is gone. Nothing was sent.")
            return False
        body = OperatorDecided(ask.body.ask_id, decision, reason, input, self.author)
        return await self.write(body, tree=self.feed.state.tree)

    # --- directing ---------------------------------------------------------------------------

    @work(group="dialog")
    async def act_message(self) -> None:
        """Write to the agent."""
        text = await self.app.push_screen_wait(
            Prompt("message to the agent", hint="delivered at its next turn")
        )
        if text:
            body = OperatorMessaged(uuid.uuid4().hex[:12], text, self.author)
            if await self.write(body, tree=self.feed.state.tree):
                self.confirm("Queued. The transcript shows when it is delivered.")

    async def act_interrupt(self) -> None:
        """Stop what the agent is doing."""
        if await self.write(OperatorInterrupted("", self.author), tree=self.feed.state.tree):
            self.confirm("Interrupted: m sends a message, p goes on.")

    async def act_pause(self) -> None:
        """Pause, or resume; after an interrupt, let it go on."""
        paused, interrupted = self.feed.state.paused, self.feed.state.interrupted
        if not (paused or interrupted):
            if await self.write(OperatorPaused("", self.author)):
                self.confirm("Paused: it ends the step it is in. p resumes.")
        elif await self.write(OperatorResumed(self.author)):
            self.app.clear_notifications()  # "Paused" is no longer true
            self.confirm("Resumed." if paused else "It goes on.")

    async def act_verify(self) -> None:
        """Ask the recorder to measure the present tree."""
        if await self.write(OperatorRequested("verify", self.author), tree=self.feed.state.tree):
            self.confirm("Measuring. The level pane shows each check as it comes.")

    @work(group="dialog")
    async def act_stop(self) -> None:
        """End agent and recorder, after asking."""
        run = self.feed.state.running
        what = f" Run #{run.number} is in progress and will be stopped." if run else ""
        question = f"End the agent and the recorder?{what} Everything recorded stays."
        if await self.app.push_screen_wait(Confirm("stop session", question)):
            if await self.write(OperatorRequested("stop session", self.author)):
                self.confirm("Stopping.")

    @work(group="dialog", exclusive=True)
    async def act_restart(self) -> None:
        """Start the recorder again."""
        from sessions.opening import start

        assert isinstance(self.feed, LiveFeed)
        self.confirm("Starting the recorder …")
        try:
            await asyncio.to_thread(start, self.feed.path)
        except (PilotageError, OSError) as err:
            self.say(f"The recorder did not start: {err}", bad=True)
            return
        self.confirm("The recorder is back. The transcript says what was cut off.")

    # --- on record ---------------------------------------------------------------------------

    @work(group="dialog")
    async def act_intervene(self) -> None:
        """Stamp the moment at once, then ask for the words."""
        # Everything below is read before the first await: these are the values of the key press.
        now, state = self.feed.now_us(), self.feed.state
        run, level, tree = state.running, state.measured_level, state.tree
        id = uuid.uuid4().hex[:12]
        stamp = InterventionRecorded(
            id, now, tree, run.run_id if run else "", level, author=self.author
        )
        proposed = guesses(state)
        if not await self.write(stamp, tree=tree, run_id=stamp.at_run, ts_us=now):
            return
        words = stamp_text(now, tree, f"run #{run.number}" if run else "", level)
        changes = await self.app.push_screen_wait(InterventionForm(words, proposed))
        if changes is None:
            self.say(f"The intervention of {clock(now)} is kept without words. u voids it.")
            return
        while not await self.write(InterventionAmended(id, changes, self.author)):
            # What was typed must not be lost to a full disk.
            again = "The words could not be saved (see above). Try again? No keeps only the stamp."
            if not await self.app.push_screen_wait(Confirm("intervention", again)):
                return
        self.confirm("Intervention saved.")

    async def act_void(self) -> None:
        """Void the last intervention, or restore it."""
        item: Intervention | None = next(reversed(self.feed.state.interventions.values()), None)
        if item is None:
            self.say("There is no intervention to void. i records one.")
            return
        id, when = item.recorded.intervention_id, clock(item.recorded.at_ts_us)
        if item.voided:
            if await self.write(InterventionRestored(id, self.author)):
                self.say(f"The intervention of {when} counts again.")
        elif await self.write(InterventionVoided(id, "", self.author)):
            self.say(f"The intervention of {when} no longer counts; it stays visible. u restores.")

    @work(group="dialog")
    async def act_waive(self) -> None:
        """Accept the chosen check of the level pane although it did not pass, with a reason."""
        from core.verify.evaluate import waived

        status = self.chosen_check()
        if status is None:
            self.say("Choose a check in the level pane first (4, then the arrows).")
            return
        if why := can_waive(status):
            self.say(why)
            return
        assert status.result is not None
        body = status.result.body
        said = f"{body.check} {body.state}: {body.reason or body.summary}"
        reason = await self.app.push_screen_wait(
            Prompt(f"waive {body.check}", block(said), hint="why it is all right as it is")
        )
        if reason and await self.write(waived(body, reason, self.author), tree=body.tree):
            self.confirm(f"Waived: {body.check}. It is shown as waived, with your reason.")

    @work(group="dialog")
    async def act_mark(self) -> None:
        """Name this moment."""
        now, tree = self.feed.now_us(), self.feed.state.tree
        text = await self.app.push_screen_wait(
            Prompt("mark", f"This moment, {clock(now)}.", hint="a name for it")
        )
        if text and await self.write(MarkerPlaced(text, self.author), tree=tree, ts_us=now):
            self.confirm("Marked.")

    # --- leaving -----------------------------------------------------------------------------

    def act_detach(self) -> None:
        """Leave; the recorder goes on."""
        self.dismiss_cockpit()

    def dismiss_cockpit(self) -> None:
        """How this screen is left; the app knows where to."""
        raise NotImplementedError


def _sentence(done: str, ask: Ask) -> str:
    """``Approved: rm -r runs.``"""
    subject = ask_subject(ask)
    return f"{done}: {subject}" + ("" if subject.endswith((".", "?", "!", "…")) else ".")
