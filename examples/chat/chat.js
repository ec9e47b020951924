// A chat room: what an application does with the SDK of the Centrifuge protocol. Text of others only ever becomes
// textContent, so that nobody can write HTML into the page.
'use strict';

// Publications that one scroll up brings.
const PAGE = 50;
const MEMBERS_SHOWN = 100;
// Lines that are kept in the page. Who scrolls up gets older ones from the history again.
const LINES_SHOWN = 500;
const element = (id) => document.getElementById(id);

// The room that is shown.
let room = null;
// The room's oldest offset that is shown, and the epoch of its offsets.
let oldest = null;
// Members by their client ids: what is known of their names.
let members = new Map();
let isShowingMembers = false;
// Lines that the next frame shows: a busy room has many in one.
let coming = [];
// Client ids that this tab has had, which the server puts beside what is published: nobody else can have them.
const own = new Set(JSON.parse(sessionStorage.getItem('chat-own') || '[]'));
let client = null;

element('name').value = localStorage.getItem('chat-name') || `guest${Math.floor(Math.random() * 1000)}`;
element('name').addEventListener('change', () => {
  localStorage.setItem('chat-name', element('name').value);
  showMembers();
});
// On a telephone the messages have the screen.
element('people').open = matchMedia('(min-width: 40.01rem)').matches;

const address = new URL('connection/websocket', location.href);
address.protocol = address.protocol.replace('http', 'ws');
const centrifuge = new Centrifuge(address.href, { minReconnectDelay: 200, maxReconnectDelay: 3000 });

function showState(state, text) {
  element('status').dataset.state = state;
  element('status').textContent = text;
}

centrifuge.on('connecting', ({ reason }) => showState('connecting', `connecting: ${reason}`));
centrifuge.on('connected', (context) => {
  client = context.client;
  own.add(client);
  sessionStorage.setItem('chat-own', JSON.stringify([...own].slice(-50)));
  showState('connected', 'connected');
});
centrifuge.on('disconnected', ({ code, reason }) => showState('disconnected', `disconnected: ${reason} (${code})`));

function line(className, ...parts) {
  const item = document.createElement('li');
  item.className = className;
  item.append(...parts);
  return item;
}

function note(text) {
  append(line('note', text));
}

// At the end, with the next frame.
function append(item) {
  coming.push(item);
  // A tab that nobody looks at has no frames.
  if (coming.length > LINES_SHOWN) coming.shift();
  if (coming.length === 1) requestAnimationFrame(showComing);
}

function isAtEnd() {
  const list = element('messages');
  return list.scrollHeight - list.scrollTop - list.clientHeight < 40;
}

// In sight if the end was in sight before.
function showComing() {
  const list = element('messages');
  const follows = isAtEnd();
  list.append(...coming.splice(0));
  if (!follows) return;
  while (list.childElementCount > LINES_SHOWN) list.firstElementChild.remove();
  const first = Number(list.querySelector('.message')?.dataset.offset);
  if (oldest && first > oldest.offset) oldest = { ...oldest, offset: first };
  list.scrollTop = list.scrollHeight;
}

function messageLine({ data, info, offset }) {
  // Data comes from anybody: it may be anything.
  const name = typeof data?.name === 'string' ? data.name : 'somebody';
  const text = typeof data?.text === 'string' ? data.text : JSON.stringify(data);
  if (info && members.has(info.client)) {
    members.set(info.client, name);
    showMembers();
  }
  const author = document.createElement('b');
  author.textContent = name;
  const item = line(own.has(info?.client) ? 'message own' : 'message', author, text);
  item.dataset.offset = offset;
  // By the clock of who wrote it; a publication has no time of its own.
  const time = new Date(typeof data?.time === 'number' ? data.time : NaN);
  if (!isNaN(time)) {
    item.dataset.time = time.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
    item.title = time.toLocaleString();
  }
  return item;
}

// A member's name and client id; one's own is known, those of others from what they write.
function named([id, name]) {
  if (id === client) return [element('name').value, id];
  return [name || `guest ${id.slice(0, 4)}`, id];
}

// Once a frame at most: hundreds may come into a room at once.
function showMembers() {
  if (isShowingMembers) return;
  isShowingMembers = true;
  requestAnimationFrame(() => {
    isShowingMembers = false;
    const wanted = element('find').value.toLowerCase();
    const found = [...members].map(named).filter(([name]) => name.toLowerCase().includes(wanted));
    // Oneself first, then by name.
    found.sort(([one, id], [other, otherId]) => (otherId === client) - (id === client) || one.localeCompare(other));
    const lines = found.slice(0, MEMBERS_SHOWN).map(([name, id]) => line(id === client ? 'own' : '', name));
    if (found.length > MEMBERS_SHOWN) lines.push(line('note', `and ${found.length - MEMBERS_SHOWN} more`));
    if (found.length === 0 && members.size > 0) lines.push(line('note', 'nobody of that name'));
    element('members').replaceChildren(...lines);
    element('count').textContent = members.size;
    element('find').hidden = members.size < 20 && !wanted;
  });
}

// Puts the page of history before what is shown at the top.
async function showOlder(subscription) {
  if (oldest && oldest.offset <= 1) return;
  const since = oldest ? { since: oldest } : {};
  const { publications, epoch } = await subscription.history({ limit: PAGE, reverse: true, ...since });
  if (subscription !== room || publications.length === 0) return;
  showComing();
  const list = element('messages');
  const height = list.scrollHeight;
  const shown = new Set([...list.querySelectorAll('.message')].map((item) => Number(item.dataset.offset)));
  const fresh = publications.filter(({ offset }) => !shown.has(offset));
  list.prepend(...fresh.reverse().map(messageLine));
  list.scrollTop += list.scrollHeight - height;
  oldest = { offset: publications[publications.length - 1].offset, epoch };
}

function enter(channel) {
  if (room) {
    room.unsubscribe();
    centrifuge.removeSubscription(room);
  }
  element('messages').replaceChildren();
  coming = [];
  oldest = null;
  members = new Map();
  showMembers();
  const subscription = centrifuge.newSubscription(channel, { joinLeave: true });
  room = subscription;
  subscription.on('publication', (publication) => append(messageLine(publication)));
  subscription.on('join', ({ info }) => {
    members.set(info.client, members.get(info.client) || '');
    showMembers();
  });
  subscription.on('leave', ({ info }) => {
    members.delete(info.client);
    showMembers();
  });
  subscription.on('unsubscribed', ({ code, reason }) => {
    if (code !== 0) note(`no entry to ${channel}: ${reason} (${code})`);
  });
  subscription.on('subscribed', async ({ wasRecovering, recovered }) => {
    if (wasRecovering && !recovered) {
      // More was missed than the server keeps: begin with history again.
      enter(channel);
      return note('back: messages before these may be lost');
    }
    if (wasRecovering) note('back: nothing was missed');
    try {
      const { clients } = await subscription.presence();
      members = new Map(Object.keys(clients).map((client) => [client, members.get(client) || '']));
      showMembers();
      if (!wasRecovering) await showOlder(subscription);
    } catch (error) {
      // The connection has gone again: the next `subscribed` asks again.
      console.warn(error);
    }
  });
  subscription.subscribe();
}

element('room').addEventListener('change', () => element('room').reportValidity() && enter(element('room').value));
element('find').addEventListener('input', showMembers);
// A keyboard on the screen, or the list of members, takes room: the end stays in sight.
let wasAtEnd = true;
new ResizeObserver(() => {
  if (wasAtEnd) element('messages').scrollTop = element('messages').scrollHeight;
}).observe(element('messages'));
element('messages').addEventListener('scroll', ({ target }) => {
  wasAtEnd = isAtEnd();
  if (target.scrollTop === 0 && room) showOlder(room).catch(console.warn);
});
element('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const input = element('text');
  const text = input.value;
  if (!text) return;
  // At once: what is typed while the message is under way is the next one.
  input.value = '';
  try {
    await room.publish({ name: element('name').value, text, time: Date.now() });
  } catch (error) {
    note(`not sent: ${error.message}`);
    input.value ||= text;
  }
});

enter(element('room').value);
centrifuge.connect();
